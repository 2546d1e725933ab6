// What the threads of a warp do together: __syncwarp, shuffles and votes.
//
// CUDA requires every lane named by a mask to call the same function with the same mask.  Each puts its part in a
// struct on its own stack and waits; the last one to arrive computes all results while the others are suspended.  Each
// function has a type of struct of its own, by which lanes that call different ones are told apart.
#pragma once

namespace host_cuda {

enum Mode { FROM_LANE, UP, DOWN, XOR, BALLOT, ANY, ALL };

template <Mode, class T>
struct Shuffle {
    T value, result;
    unsigned source;

    static void exchange(void* const* lanes, unsigned present)
    {
        for (unsigned lane = 0; lane < WARP; ++lane) {
            if (!(present >> lane & 1)) continue;
            Shuffle& shuffle = *static_cast<Shuffle*>(lanes[lane]);
            if (present >> shuffle.source & 1)
                shuffle.result = static_cast<Shuffle*>(lanes[shuffle.source])->value;
            else  // undefined in CUDA: a NaN shows
                memset(static_cast<void*>(&shuffle.result), 0xff, sizeof(T));
        }
    }
};

template <Mode mode, class T>
T shuffle(unsigned mask, T value, unsigned source, int width, Site site)
{
    if (width < 1 || width > warpSize || width & (width - 1))
        fail("a shuffle's width is a power of two, up to 32", site);
    Shuffle<mode, T> mine{value, value, source};
    wait_for_warp(mask, mine.exchange, &mine, site);
    return mine.result;
}

// Shuffles work on segments of `width` lanes, a power of two: the first and last lane of this lane's segment.
inline unsigned segment_first(int width) { return lane() & ~(unsigned(width) - 1); }
inline unsigned segment_last(int width) { return lane() | (unsigned(width) - 1); }

template <Mode>
struct Vote {
    bool predicate;
    unsigned ballot;

    static void count(void* const* lanes, unsigned present)
    {
        unsigned ballot = 0;
        for (unsigned lane = 0; lane < WARP; ++lane)
            if (present >> lane & 1) ballot |= unsigned(static_cast<Vote*>(lanes[lane])->predicate) << lane;
        for (unsigned lane = 0; lane < WARP; ++lane)
            if (present >> lane & 1) static_cast<Vote*>(lanes[lane])->ballot = ballot;
    }
};

template <Mode mode>
unsigned vote(unsigned mask, bool predicate, Site site)
{
    Vote<mode> mine{predicate, 0};
    wait_for_warp(mask, mine.count, &mine, site);
    return mine.ballot;
}

inline void nothing(void* const*, unsigned) {}

}  // namespace host_cuda

inline void __syncwarp(unsigned mask = host_cuda::ALL_LANES, host_cuda::Site site = host_cuda::here())
{
    host_cuda::wait_for_warp(mask, host_cuda::nothing, nullptr, site);
}

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = warpSize, host_cuda::Site site = host_cuda::here())
{
    using namespace host_cuda;
    return shuffle<FROM_LANE>(mask, value, segment_first(width) | (source & (width - 1)), width, site);
}

// A lane whose source lies outside its segment keeps its own value, in this and the next two.
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize, host_cuda::Site site = host_cuda::here())
{
    const unsigned lane = host_cuda::lane(), inside = lane - host_cuda::segment_first(width);
    return host_cuda::shuffle<host_cuda::UP>(mask, value, delta <= inside ? lane - delta : lane, width, site);
}

template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize,
                   host_cuda::Site site = host_cuda::here())
{
    const unsigned lane = host_cuda::lane(), left = host_cuda::segment_last(width) - lane;
    return host_cuda::shuffle<host_cuda::DOWN>(mask, value, delta <= left ? lane + delta : lane, width, site);
}

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = warpSize, host_cuda::Site site = host_cuda::here())
{
    using namespace host_cuda;
    const unsigned own = lane(), source = own ^ unsigned(bits);
    return shuffle<XOR>(mask, value, source <= segment_last(width) ? source : own, width, site);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, host_cuda::Site site = host_cuda::here())
{
    return host_cuda::vote<host_cuda::BALLOT>(mask, predicate != 0, site);
}

inline int __any_sync(unsigned mask, int predicate, host_cuda::Site site = host_cuda::here())
{
    return host_cuda::vote<host_cuda::ANY>(mask, predicate != 0, site) != 0;
}

inline int __all_sync(unsigned mask, int predicate, host_cuda::Site site = host_cuda::here())
{
    return host_cuda::vote<host_cuda::ALL>(mask, predicate == 0, site) == 0;
}
