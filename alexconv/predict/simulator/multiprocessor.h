// One multiprocessor, run from machine code.  Integers, addresses and control are executed for 32 lanes a warp; time
// comes from the code's own control bits (stalls, scoreboards) and from the rates and latencies of the units.
//
// Time is in cycles.  A unit that serves one request at a time is represented by the time at which it is free again.
#pragma once

#include "execute.h"
#include "machine.h"
#include "memory.h"

namespace {

class Multiprocessor {
    const Setup& setup;
    Result& result;
    const double* parameter;
    double* count;
    ConstantBank constants;
    L1 l1;

    double now = 0, soonest = NEVER;
    double lsu_free = 0, lsu_busy = 0;              // L1 and shared memory
    double port_free[SCHEDULERS] = {};              // each scheduler's port to them
    double barrier_free = 0, last_start = -NEVER;
    u64 slots[SCHEDULERS] = {};                     // that warps occupy, a bit each
    double l2_free = 0, store_free = 0, dram_free = 0, dram_share = 0, write_share = 0;
    double pipe_free[SCHEDULERS][PIPES] = {}, lite_free[SCHEDULERS] = {};
    std::deque<double> queue[SCHEDULERS];           // when memory instructions leave it
    std::vector<Warp*> warps[SCHEDULERS];
    Warp* last[SCHEDULERS] = {};
    std::vector<std::unique_ptr<Block>> resident;
    i64 next_block = 0, next_age = 0;
    int next_scheduler = 0;
    std::vector<u64> touched;                       // sectors of the first block
    bool footprint;
    const int policy;
    const double queue_depth, lat_l1, lat_shared, lat_store;

    // Registers that an instruction reads, by operand position.
    struct Sources {
        struct {
            int place, number;
            bool reused;
        } operands[6];
        int count = 0;
    };
    std::vector<Sources> sources;
    // A scheduler's operand reuse cache, and when its two register banks are free.
    struct ReuseCache {
        const Warp* warp = nullptr;
        int number[MAX_OPERANDS];
    };
    ReuseCache reuse_cache[SCHEDULERS];
    double bank_free[SCHEDULERS][2] = {};
    double tensor_free[SCHEDULERS] = {};            // of products of warpgroups

    struct CodeLine {
        i64 fetch = -1;  // number of its last fetch
        double ready = 0;
    };
    std::vector<CodeLine> code_lines;
    i64 fetches = 0;
    double fetch_free = 0;

    struct Event {
        double time;
        Block* block;
        u32 barrier;
        i64 bytes;
        bool operator>(const Event& other) const { return time > other.time; }
    };
    std::priority_queue<Event, std::vector<Event>, std::greater<Event>> events;

public:
    Multiprocessor(const Setup& s, Result& r);
    void run();

private:
    double p(Parameter which) const { return parameter[which]; }

    // Blocks ---------------------------------------------------------------------------------------------------------

    void start_block(double time);

    // The lowest free slot of a scheduler.
    int free_slot(int q);

    // When a block may start: the GPU starts one at a time.
    double next_start(double time);
    void retire();

    // Issue ----------------------------------------------------------------------------------------------------------

    static Group* current(Warp& w);

    // When the warp's next instruction may issue, if its unit is free: after `time`, and after its scoreboards.
    void prepare(Warp& w, double time);
    static Sources sources_of(const Instruction& i);

    // When the register banks can serve the instruction within its window (Huerta et al., 2025, section 5.3).
    double banks_free(int q, const Warp* w, const Sources& from, int (&reads)[2]) const;
    void take_banks(int q, const Warp* w, const Sources& from, const int (&reads)[2]);

    // When the line of code has been fetched; lines are evicted first in, first out.
    double fetched(int pc, double time);

    // When the instruction's unit is free; sets why the warp waits if that is later than now.
    double unit_free(int q, const Instruction& i, int& reason);
    void take_unit(int q, const Instruction& i);
    bool better(const Warp* a, const Warp* b, int q) const;
    bool issue(int q);

    // Attributes the cycles since the warp's last instruction to stall reasons.
    void account(Warp& w, const Instruction& i, int pc);

    // Instructions ---------------------------------------------------------------------------------------------------

    double next_after = 0;  // when the warp continues, if later than the code says
    double queue_left = 0;  // when the last memory instruction left its queue

    // Executes the instruction; returns when its result is available.
    double execute(Warp& w, Group& g, const Instruction& i, u32 mask, int q, double next);
    void calculate(Warp& w, const Instruction& i, u32 mask);
    void special(Warp& w, const Instruction& i, u32 mask);
    double multiply(int q, const Instruction& i);

    // A product of a warpgroup: each warp's quarter on its scheduler's tensor core, one after the other.
    void multiply_together(Warp& w, const Instruction& i, int q);
    void wait_for_group(const std::vector<double>& groups, const Instruction& i);

    // Control flow ---------------------------------------------------------------------------------------------------

    void control(Warp& w, Group& g, const Instruction& i, u32 mask, double next);

    // The mask's lanes go to `place`, with state `blocked`; the others to `rest`.
    void split(Warp& w, Group& g, u32 mask, int place, int rest, int blocked);
    void jump(Warp& w, Group& g, u32 taken, int target, double next);
    static void merge(Warp& w);

    // Releases lanes once all of them wait at their convergence barrier.
    void release(Warp& w);
    void leave(Warp& w, Group& g, u32 mask);
    void synchronise(Warp& w, Group& g, const Instruction& i, u32 mask);
    void arrive_in_part(Warp& w);
    void complete_barrier(Block& block, int id, int wanted);

    // mbarriers and the copy engine -----------------------------------------------------------------------------------

    void use_mbarrier(Warp& w, const Instruction& i, u32 mask);
    void complete_phase(Mbarrier& barrier);

    // Credits bytes that have arrived to their mbarriers.
    void deliver();

    u32 uniform(const Warp& w, i64 number) const { return number == URZ ? 0 : w.uniform[number]; }

    // A copy into shared memory by the copy engine, which signals an mbarrier.
    void copy(Warp& w, const Instruction& i);
    void touch(u64 address, i64 bytes);

    // The bytes of a box whose coordinates are in uniform registers from `first` on; marks what it reads.
    i64 touch_box(const TensorMap& map, const Warp& w, i64 first);

    // Memory ---------------------------------------------------------------------------------------------------------

    // Occupies the data path of L1 and shared memory, and the scheduler's port, for some turns; returns when they end.
    double take_lsu(double turns, int q, double of_scheduler);
    double take_lsu(double turns, int q) { return take_lsu(turns, q, turns); }
    const Operand& memory_operand(const Instruction& i) const;
    void addresses(Warp& w, const Operand& o, bool global, u64* to) const;
    double access(Warp& w, const Instruction& i, u32 mask, int q);
    void remember(const Access& a, const Instruction& i);
    double load(Warp& w, const Instruction& i, const Access& a, u32 mask, int q);

    // Sectors from L2, a share of them from device memory; returns when the last has arrived.  Where only one block in
    // `fewer` still reads, it gets so much more of L2's rate.
    double fetch(double time, double sectors, double fewer = 1);

    // Stores and reductions into L2; a long queue there stalls the multiprocessor.
    void to_l2(double time, double cycles, double sectors);
    double store(const Instruction& i, const Access& a, const u64* at, u32 mask, int q);
    double reduce(Warp& w, const Instruction& i, const Access& a, const u64* at, u32 mask, int q);

    // The longest run of lanes that access one word; L2 serializes them.
    Lanes counted(Warp& w, const Instruction& i);
    static int same_word(const u64* at, u32 mask);
    double shared(Warp& w, const Instruction& i, u32 mask, int q, u64* at);
    double spill(Warp& w, const Instruction& i, u32 mask, int q);
    void shuffle(Warp& w, const Instruction& i, u32 mask);

    // The first block's sectors as runs: array, first byte, bytes.
    void write_footprint();
};

}  // namespace
