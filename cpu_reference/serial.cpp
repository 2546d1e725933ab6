// The plain convolution: seven loops, one thread, float sums.  It is what the speedups over a serial CPU refer to.
// x[N][C][H][W], w[M][C / groups][R][S] -> y[N][M][E][F]; U and V: strides; P and Q: rows and columns between taps

#include <cstddef>

extern "C" void serial_convolution(const float *x, const float *w, float *y, std::size_t N, std::size_t C,
                                   std::size_t H, std::size_t W, std::size_t M, std::size_t R, std::size_t S,
                                   std::size_t U, std::size_t V, std::size_t P, std::size_t Q, std::size_t groups,
                                   std::size_t E, std::size_t F) {
    const std::size_t channels = C / groups, filters = M / groups;
    for (std::size_t n = 0; n < N; ++n)
        for (std::size_t m = 0; m < M; ++m) {
            const float *const in = x + (n * C + m / filters * channels) * H * W;
            for (std::size_t e = 0; e < E; ++e)
                for (std::size_t f = 0; f < F; ++f) {
                    float sum = 0;
                    for (std::size_t c = 0; c < channels; ++c)
                        for (std::size_t r = 0; r < R; ++r)
                            for (std::size_t s = 0; s < S; ++s)
                                sum += in[(c * H + e * U + r * P) * W + f * V + s * Q] *
                                       w[((m * channels + c) * R + r) * S + s];
                    y[((n * M + m) * E + e) * F + f] = sum;
                }
        }
}
