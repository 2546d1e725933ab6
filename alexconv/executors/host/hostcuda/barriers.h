// mbarrier, the barriers that count arrivals and bytes; named barriers.
#pragma once

using Mbarrier = uint64_t;  // in shared memory

namespace host_cuda {

// What the 64 bits of a barrier hold here.
struct BarrierState {
    uint64_t pending : 20;     // arrivals that the phase still waits for
    uint64_t expected : 20;    // arrivals of each phase
    int64_t bytes : 21;        // announced and not yet arrived; negative: arrived and not yet announced
    uint64_t parity : 1;       // of the phase
    uint64_t initialised : 2;  // INITIALISED; unwritten memory has other bits
};
static_assert(sizeof(BarrierState) == sizeof(Mbarrier));

constexpr unsigned INITIALISED = 1;
constexpr int MOST_COUNTED = (1 << 20) - 1;  // arrivals and bytes

inline BarrierState state_of(const Mbarrier* barrier, Site site)
{
    if (misalignment(barrier, sizeof *barrier)) fail("a barrier needs an address aligned to 8 bytes", site);
    const auto state = same_bits<BarrierState>(*barrier);
    if (state.initialised != INITIALISED) fail("the barrier is not initialised", site);
    return state;
}

// Counts arrivals and bytes.  When none are missing the next phase begins, and its waiters resume.
inline void count(Mbarrier* barrier, int arrivals, int announced, int brought, Site site)
{
    const trace::Pause pause;  // simultaneous arrivals do not race
    BarrierState state = state_of(barrier, site);
    const int64_t bytes = state.bytes + int64_t(announced) - brought;
    if (arrivals > int(state.pending)) fail("more arrivals than the barrier expects in a phase", site);
    if (bytes < -MOST_COUNTED || bytes > MOST_COUNTED) fail("more bytes than a barrier counts", site);
    state.pending -= unsigned(arrivals);
    state.bytes = bytes;
    const bool ends = !state.pending && !state.bytes;
    if (ends) {
        state.pending = state.expected;
        state.parity ^= 1;
    }
    *barrier = same_bits<Mbarrier>(state);
    if (!ends) return;
    hazards::phase_ends(barrier, site);
    phase_ends(barrier);
}

}  // namespace host_cuda

inline void mbarrier_init(Mbarrier* barrier, unsigned arrivals, host_cuda::Site site = host_cuda::here())
{
    using namespace host_cuda;
    if (misalignment(barrier, sizeof *barrier)) fail("a barrier needs an address aligned to 8 bytes", site);
    if (arrivals < 1 || arrivals > MOST_COUNTED) fail("a barrier expects 1 to 2^20 - 1 arrivals", site);
    const trace::Pause pause;
    hazards::barrier_starts(barrier, site);
    *barrier = same_bits<Mbarrier>(BarrierState{arrivals, arrivals, 0, 0, INITIALISED});
}

inline void mbarrier_init_fence() { host_cuda::hazards::fence_proxy(); }

inline void mbarrier_arrive(Mbarrier* barrier, host_cuda::Site site = host_cuda::here())
{
    using namespace host_cuda;
    hazards::barrier_is_used(barrier, site);
    hazards::arrives(barrier);
    count(barrier, 1, 0, 0, site);
}

inline void mbarrier_arrive_expect_tx(Mbarrier* barrier, unsigned bytes, host_cuda::Site site = host_cuda::here())
{
    using namespace host_cuda;
    if (bytes > MOST_COUNTED) fail("more bytes than a barrier counts", site);
    hazards::barrier_is_used(barrier, site);
    hazards::announces(barrier, bytes, site);
    hazards::arrives(barrier);
    count(barrier, 1, int(bytes), 0, site);
}

inline void mbarrier_wait(Mbarrier* barrier, unsigned parity, host_cuda::Site site = host_cuda::here())
{
    using namespace host_cuda;
    if (parity > 1) fail("the parity of a phase is 0 or 1", site);
    {
        const trace::Pause pause;
        state_of(barrier, site);  // here, where AddressSanitizer watches it
    }
    hazards::barrier_is_used(barrier, site);
    wait_for_phase(barrier, parity, site);
    hazards::has_waited(barrier);
}

inline void named_barrier(int name, int threads, host_cuda::Site site = host_cuda::here())
{
    host_cuda::wait_at_named_barrier(name, threads, site);
}
