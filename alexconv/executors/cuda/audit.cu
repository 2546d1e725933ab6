// The audit of timed runs: negates inputs between launches, hashes arrays, reads the clock.
//
// Each kernel has an entry point for elements of 4 and of 2 bytes, IEEE numbers with the sign in the highest bit.
using u64 = unsigned long long;

template <class Word>
constexpr Word SIGN = Word(Word(1) << (8 * sizeof(Word) - 1));

// Negates each value of the marked images from `first` on; a row of blocks takes one image after the other.
template <class Word>
__device__ void negate(Word* values,                 // [images][per_image]
                       u64 per_image,
                       const unsigned char* marked,  // [images], or null: all of them
                       u64 first, u64 images)
{
    for (u64 n = first + blockIdx.y; n < images; n += gridDim.y) {
        if (marked && !marked[n]) continue;
        Word* image = values + n * per_image;
        for (u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x; i < per_image; i += u64(gridDim.x) * blockDim.x)
            image[i] ^= SIGN<Word>;
    }
}

// The finaliser of splitmix64 (Steele, Lea and Flood, OOPSLA 2014).
__device__ u64 mixed(u64 x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

// Adds to each image's sum a hash of every value and its index, with the values of marked images negated; zeros of
// either sign count alike.  The sums do not depend on the order of the threads.
template <class Word>
__device__ void add_up(const Word* values,            // [images][per_image]
                       u64 per_image,
                       const unsigned char* negated,  // [images]
                       u64 images,
                       u64* sums)                     // [images]
{
    for (u64 n = blockIdx.y; n < images; n += gridDim.y) {
        const Word* image = values + n * per_image;
        const Word sign = negated[n] ? SIGN<Word> : Word(0);
        u64 sum = 0;
        for (u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x; i < per_image; i += u64(gridDim.x) * blockDim.x) {
            Word value = image[i] ^ sign;
            if (!Word(value << 1)) value = 0;
            sum += mixed((i << 32 ^ i >> 32) + value + 0x9e3779b97f4a7c15u);
        }
        for (int distance = 16; distance; distance /= 2) sum += __shfl_down_sync(~0u, sum, distance);
        if (threadIdx.x % 32 == 0) atomicAdd(&sums[n], sum);
    }
}

extern "C" __global__ void negate4(unsigned* values, u64 per_image, const unsigned char* marked, u64 first,
                                   u64 images)
{
    negate(values, per_image, marked, first, images);
}

extern "C" __global__ void negate2(unsigned short* values, u64 per_image, const unsigned char* marked, u64 first,
                                   u64 images)
{
    negate(values, per_image, marked, first, images);
}

extern "C" __global__ void add_up4(const unsigned* values, u64 per_image, const unsigned char* negated, u64 images,
                                   u64* sums)
{
    add_up(values, per_image, negated, images, sums);
}

extern "C" __global__ void add_up2(const unsigned short* values, u64 per_image, const unsigned char* negated,
                                   u64 images, u64* sums)
{
    add_up(values, per_image, negated, images, sums);
}

// One thread counts the cycles of its multiprocessor and the nanoseconds that they take.
extern "C" __global__ void clocks(u64* readings,  // [2]
                                  u64 nanoseconds)
{
    u64 first, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(first));
    do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now == first);  // begin where the timer steps
    first = now;
    const long long cycles = clock64();
    do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now - first < nanoseconds);
    readings[0] = clock64() - cycles;
    readings[1] = now - first;
}
