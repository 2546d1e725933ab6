// One multiprocessor, run from machine code.  Integers, addresses and control are executed for 32 lanes a warp; time
// comes from the code's own control bits (stalls, scoreboards) and from the rates and latencies of the units.
//
// Time is in cycles.  A unit that serves one request after the other is the moment at which it is free again.
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
    double port_free[SCHEDULERS] = {};              // each scheduler's way there
    double barrier_free = 0, last_start = -NEVER;
    u64 slots[SCHEDULERS] = {};                     // that warps have
    double l2_free = 0, store_free = 0, dram_free = 0, dram_share = 0, write_share = 0;
    double pipe_free[SCHEDULERS][PIPES] = {}, lite_free[SCHEDULERS] = {};
    std::deque<double> queue[SCHEDULERS];           // when memory instructions leave it
    std::vector<Warp*> warps[SCHEDULERS];
    Warp* last[SCHEDULERS] = {};
    std::vector<std::unique_ptr<Block>> resident;
    i64 next_block = 0, next_age = 0;
    int next_scheduler = 0;
    std::unordered_map<u64, double> word_free;      // of atomics, by address
    std::vector<u64> touched;                       // sectors of the first block
    bool footprint;
    const int policy;
    const double queue_depth, lat_l1, lat_shared, lat_store;

    // Registers that an instruction reads, by the place of the operand.
    struct Sources {
        struct {
            int place, number;
            bool reused;
        } each[6];
        int count = 0;
    };
    std::vector<Sources> sources;
    // What a scheduler keeps of the last instruction's operands, and when its two register banks are free.
    struct Kept {
        const Warp* warp = nullptr;
        int number[MAX_OPERANDS];
    };
    Kept kept[SCHEDULERS];
    double bank_free[SCHEDULERS][2] = {};
    double tensor_free[SCHEDULERS] = {};            // of products of warpgroups

    struct CodeLine {
        i64 fetch = -1;  // its number
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
    Multiprocessor(const Setup& s, Result& r)
        : setup(s), result(r), parameter(s.parameters), count(r.counters), l1(s.l1_bytes), footprint(s.footprint),
          policy(int(s.parameters[P_ISSUE_ORDER])), queue_depth(s.parameters[P_QUEUE_DEPTH]),
          lat_l1(s.parameters[P_LATENCY_L1]), lat_shared(s.parameters[P_LATENCY_SHARED]),
          lat_store(s.parameters[P_LATENCY_STORE])
    {
        for (int axis = 0; axis < 3; axis++) {
            const u32 block = u32(setup.block[axis]), grid = u32(setup.grid[axis]);
            constants.put(4 * axis, &block, 4);
            constants.put(12 + 4 * axis, &grid, 4);
        }
        constexpr int STACK = 0x28;
        const int arguments = int(p(P_ARGUMENTS_AT));
        for (i64 k = 0; k < setup.argument_count; k++)
            constants.put(arguments + 8 * int(k), &setup.arguments[k], 8);
        code_lines.resize(size_t(setup.length) / 8 + 1);
        for (i64 k = 0; k < setup.length; k++)
            sources.push_back(sources_of(setup.code[k]));
        const u32 stack = 0x1000;
        constants.put(STACK, &stack, 4);
    }

    void run()
    {
        while (i64(resident.size()) < setup.resident && next_block < setup.block_count)
            start_block(next_start(now));
        while (!resident.empty()) {
            soonest = NEVER;
            deliver();
            bool any = false;
            for (int q = 0; q < SCHEDULERS; q++)
                any |= issue(q);
            retire();
            if (resident.empty())
                break;
            if (any) {
                now += 1;
                continue;
            }
            if (!events.empty())
                soonest = std::min(soonest, events.top().time);
            if (soonest >= NEVER)
                throw Unsupported("the kernel's warps wait for each other for ever");
            now = std::max(now + 1, std::ceil(soonest));
        }
        count[C_CYCLES] = now;
        count[C_LSU] = lsu_busy;
        if (setup.footprint)
            write_footprint();
    }

private:
    double p(Parameter which) const { return parameter[which]; }

    // Blocks ---------------------------------------------------------------------------------------------------------

    void start_block(double time)
    {
        auto block = std::make_unique<Block>();
        block->number = setup.blocks[next_block++];
        i64 rest = block->number;
        for (int axis = 0; axis < 3; axis++) {
            block->index[axis] = rest % setup.grid[axis];
            rest /= setup.grid[axis];
        }
        const int threads = int(setup.block[0] * setup.block[1] * setup.block[2]), count = (threads + 31) / 32;
        block->shared.assign(setup.shared_bytes, 0);
        block->registers.assign(size_t(count) * (setup.registers + 4) * LANES, 0);
        block->live = count;
        memset(block->arrived, 0, sizeof block->arrived);
        for (int k = 0; k < count; k++) {
            auto warp = std::make_unique<Warp>();
            Warp& w = *warp;
            w.block = block.get();
            w.number = k;
            w.scheduler = next_scheduler++ % SCHEDULERS;
            const int lanes = std::min(LANES, threads - LANES * k);
            w.lanes = lanes == LANES ? ALL_LANES : (1u << lanes) - 1;
            w.registers = &block->registers[size_t(k) * (setup.registers + 4) * LANES];
            memset(w.predicates, 0, sizeof w.predicates);
            memset(w.uniform, 0, sizeof w.uniform);
            memset(w.convergence, 0, sizeof w.convergence);
            w.uniform_predicates = 0;
            w.groups.push_back({0, w.lanes, RUNNING});
            std::fill(w.scoreboard, w.scoreboard + SCOREBOARDS, 0.0);
            std::fill(w.from_memory, w.from_memory + SCOREBOARDS, false);
            w.issued = w.ready = w.ready_fixed = time;
            w.copies = w.product = 0;
            w.slot = free_slot(w.scheduler);
            w.age = next_age++;
            w.blocked_by = -1;
            w.waiting = w.done = false;
            prepare(w, time);
            warps[w.scheduler].push_back(&w);
            block->warps.push_back(std::move(warp));
        }
        resident.push_back(std::move(block));
    }

    // The lowest free slot of a scheduler.
    int free_slot(int q)
    {
        const int slot = __builtin_ctzll(~slots[q]);
        slots[q] |= 1ull << slot;
        return slot;
    }

    // When a block may begin: the GPU starts one after the other.
    double next_start(double time)
    {
        last_start = std::max(time, last_start + p(P_BLOCK_INTERVAL));
        return last_start;
    }

    void retire()
    {
        for (size_t k = 0; k < resident.size();) {
            Block* block = resident[k].get();
            if (block->live) {
                k++;
                continue;
            }
            result.finished[result.ended++] = now + 1;
            footprint = false;
            for (const auto& w : block->warps)
                slots[w->scheduler] &= ~(1ull << w->slot);
            for (int q = 0; q < SCHEDULERS; q++) {
                auto ours = [&](Warp* w) { return w->block == block; };
                if (last[q] && ours(last[q]))
                    last[q] = nullptr;
                warps[q].erase(std::remove_if(warps[q].begin(), warps[q].end(), ours), warps[q].end());
            }
            resident.erase(resident.begin() + long(k));
            if (next_block < setup.block_count)
                start_block(next_start(now + p(P_BLOCK_START)));
        }
    }

    // Issue ----------------------------------------------------------------------------------------------------------

    static Group* current(Warp& w)
    {
        if (w.groups.size() == 1)
            return w.groups[0].blocked == RUNNING ? &w.groups[0] : nullptr;
        Group* best = nullptr;
        for (Group& g : w.groups)
            if (g.blocked == RUNNING && (!best || g.pc < best->pc))
                best = &g;
        return best;
    }

    // When the warp's next instruction may issue, if its unit is free: `time` for the one before, and its scoreboards.
    void prepare(Warp& w, double time)
    {
        w.ready_fixed = w.ready = w.ready_code = time;
        w.blocked_by = -1;
        w.next = nullptr;
        const Group* g = current(w);
        if (!g)
            return;
        if (g->pc >= setup.length)
            throw Unsupported("the kernel's code ends without an exit");
        w.next = &setup.code[g->pc];
        const i64 waits = w.next->waits;
        for (int s = 0; s < SCOREBOARDS; s++)
            if (waits >> s & 1)
                w.ready = std::max(w.ready, w.scoreboard[s]);
        w.ready_code = fetched(g->pc, time);
        w.ready = std::max(w.ready, w.ready_code);
    }

    static Sources sources_of(const Instruction& i)
    {
        Sources found;
        if (i.pipe != PIPE_FMA && i.pipe != PIPE_HEAVY && i.pipe != PIPE_ALU && i.pipe != PIPE_HALF)
            return found;
        for (int k = is_predicate(i.operands[0]) ? 0 : 1; k < i.count && found.count < 6; k++)
            if (i.operands[k].kind == REGISTER && i.operands[k].number != RZ)
                found.each[found.count++] = {k, int(i.operands[k].number), bool(i.operands[k].reused)};
        return found;
    }

    // When the register banks can serve the instruction within its window (Huerta et al., 2025, section 5.3).
    double banks_free(int q, const Warp* w, const Sources& from, int (&reads)[2]) const
    {
        reads[0] = reads[1] = 0;
        for (int k = 0; k < from.count; k++) {
            const auto& source = from.each[k];
            if (kept[q].warp != w || kept[q].number[source.place] != source.number)
                reads[source.number & 1]++;
        }
        const double window = p(P_READ_WINDOW);
        return std::max(reads[0] ? bank_free[q][0] + reads[0] - window : 0.0,
                        reads[1] ? bank_free[q][1] + reads[1] - window : 0.0);
    }

    void take_banks(int q, const Warp* w, const Sources& from, const int (&reads)[2])
    {
        for (int bank = 0; bank < 2; bank++)
            if (reads[bank])
                bank_free[q][bank] = std::max(bank_free[q][bank], now) + reads[bank];
        std::fill(kept[q].number, kept[q].number + MAX_OPERANDS, -1);
        kept[q].warp = w;
        for (int k = 0; k < from.count; k++)
            if (from.each[k].reused)
                kept[q].number[from.each[k].place] = from.each[k].number;
    }

    // When the line of code is there; the one that came in first makes room.
    double fetched(int pc, double time)
    {
        constexpr int INSTRUCTIONS = 8;
        CodeLine& line = code_lines[size_t(pc / INSTRUCTIONS)];
        if (line.fetch >= 0 && double(fetches - line.fetch) < p(P_CODE_LINES))
            return line.ready;
        const bool near = line.fetch >= 0 && double(fetches - line.fetch) < p(P_CODE_LINES_NEAR);
        fetch_free = std::max(time, fetch_free) + p(near ? P_CODE_NEAR : P_CODE_FAR);
        line = {fetches++, fetch_free};
        return line.ready;
    }

    // When a unit takes the next instruction; sets why the warp waits if that is later than now.
    double unit_free(int q, const Instruction& i, int& reason)
    {
        switch (i.pipe) {
        case PIPE_NONE:
            return 0;
        case PIPE_FMA:
            reason = S_MATH_PIPE_THROTTLE;
            return std::min(pipe_free[q][PIPE_HEAVY], lite_free[q]);
        case PIPE_MEMORY: {
            auto& waiting = queue[q];
            while (!waiting.empty() && waiting.front() <= now)
                waiting.pop_front();
            const bool full = double(waiting.size()) >= queue_depth;
            reason = i.op == OP_LDG || i.op == OP_STG || i.op == OP_RED ? S_LG_THROTTLE : S_MIO_THROTTLE;
            return std::max(pipe_free[q][PIPE_MEMORY], full ? waiting.front() : 0.0);
        }
        default:
            reason = S_MATH_PIPE_THROTTLE;
            return pipe_free[q][i.pipe];
        }
    }

    void take_unit(int q, const Instruction& i)
    {
        const double cost = p(Parameter(P_PIPE_FIRST + i.pipe));
        count[C_PIPE_FIRST + i.pipe] += cost;
        if (i.pipe == PIPE_FMA) {  // the half that integers do not need first
            const bool lite = lite_free[q] <= now;
            (lite ? lite_free[q] : pipe_free[q][PIPE_HEAVY]) = now + 2 * cost;
        } else if (i.pipe != PIPE_NONE) {
            pipe_free[q][i.pipe] = now + cost;
        }
    }

    bool better(const Warp* a, const Warp* b, int q) const
    {
        switch (policy) {
        case 0:  // the one that has waited longest since its last instruction
            return a->issued < b->issued;
        case 1:  // the oldest
            return a->age < b->age;
        case 2:  // the last again, else the oldest
            return a == last[q] || (b != last[q] && a->age < b->age);
        default:  // the last again, else the one in the highest slot
            return a == last[q] || (b != last[q] && a->slot > b->slot);
        }
    }

    bool issue(int q)
    {
        Warp* chosen = nullptr;
        for (Warp* w : warps[q]) {
            if (w->done || w->waiting || !w->next)
                continue;
            if (w->ready > now) {
                soonest = std::min(soonest, w->ready);
                continue;
            }
            int reason = -1;
            double free = unit_free(q, *w->next, reason);
            int reads[2];
            const Sources& from = sources[size_t(w->next - setup.code)];
            if (from.count && free <= now)
                free = banks_free(q, w, from, reads);
            if (free > now) {
                w->blocked_by = reason;
                soonest = std::min(soonest, free);
                continue;
            }
            if (!chosen || better(w, chosen, q))
                chosen = w;
        }
        if (!chosen)
            return false;
        Warp& w = *chosen;
        Group* g = current(w);
        const int pc = g->pc;
        const Instruction& i = setup.code[pc];
        account(w, i, pc);
        int reads[2];
        banks_free(q, chosen, sources[size_t(pc)], reads);
        take_banks(q, chosen, sources[size_t(pc)], reads);
        last[q] = chosen;
        w.issued = now;
        take_unit(q, i);
        count[C_ISSUED]++;
        count[C_LANES] += __builtin_popcount(g->mask);
        if (count[C_ISSUED] > double(setup.instruction_limit))
            throw Unsupported("more instructions than the model follows");
        u32 mask = g->mask;
        if (i.guard.number != PT || i.guard.inverted)
            mask &= Reader<LANES>{w, constants}.predicate(i.guard);
        const double next = now + std::max<double>(1, double(i.stall));
        const double done = execute(w, *g, i, mask, q, next);
        if (i.writes >= 0) {
            w.scoreboard[i.writes] = std::max(w.scoreboard[i.writes], std::max(done, now + 1));
            w.from_memory[i.writes] = i.op == OP_LDG || i.op == OP_LDL;
        }
        if (i.reads >= 0) {
            const double read = i.pipe == PIPE_MEMORY && i.op != OP_LDC ? std::max(now, queue_left) + p(P_OPERANDS_READ)
                                                                      : now + p(P_OPERANDS_READ);
            w.scoreboard[i.reads] = std::max(w.scoreboard[i.reads], read);
            w.from_memory[i.reads] = false;
        }
        if (!w.done)
            prepare(w, std::max(next, next_after));
        return true;
    }

    // Where the cycles since the warp's last instruction went.
    void account(Warp& w, const Instruction& i, int pc)
    {
        double* waited = result.waited + size_t(pc) * STALLS;
        result.issued[pc]++;
        const double fixed = std::min(w.ready_fixed, now) - w.issued;
        if (fixed > 0) {
            const bool known = w.blocked_by == S_BARRIER || w.blocked_by == S_GMMA;
            waited[known ? w.blocked_by : S_WAIT] += fixed;
        }
        if (w.ready > w.ready_fixed && w.ready_code >= w.ready) {
            waited[S_NO_INSTRUCTION] += w.ready - w.ready_fixed;
        } else if (w.ready > w.ready_fixed) {
            bool memory = false;
            for (int s = 0; s < SCOREBOARDS; s++)
                memory |= i.waits >> s & 1 && w.from_memory[s] && w.scoreboard[s] >= w.ready;
            waited[memory ? S_LONG_SCOREBOARD : S_SHORT_SCOREBOARD] += w.ready - w.ready_fixed;
        }
        if (now > w.ready)
            waited[w.blocked_by >= 0 && w.blocked_by != S_BARRIER && w.blocked_by != S_GMMA ? w.blocked_by : S_NOT_SELECTED] += now - w.ready;
    }

    // Instructions ---------------------------------------------------------------------------------------------------

    double next_after = 0;  // when the warp goes on, if later than the code says
    double queue_left = 0;  // when the last memory instruction left its queue

    // Does the instruction; returns when its result is there.
    double execute(Warp& w, Group& g, const Instruction& i, u32 mask, int q, double next)
    {
        next_after = 0;
        switch (i.op) {
        case OP_NOP:
            g.pc++;
            return now;
        case OP_FLOAT:
            g.pc++;
            return now + (i.pipe == PIPE_XU ? p(P_LATENCY_XU) : p(P_LATENCY_VARIABLE));
        case OP_MMA:
            g.pc++;
            return multiply(q, i);
        case OP_S2R:
            special(w, i, mask);
            g.pc++;
            return now + p(P_LATENCY_SPECIAL);
        case OP_LDC:
            calculate(w, i, mask);
            g.pc++;
            return now + p(P_LATENCY_CONSTANT);
        case OP_R2UR:
        case OP_VOTE:
        case OP_ELECT:
            gather(w, constants, i, mask);
            g.pc++;
            return now + p(P_LATENCY_VARIABLE);
        case OP_SET_REGISTERS:
        case OP_B2R: {
            const u32 bits = i.op == OP_SET_REGISTERS ? ALL_LANES : 0;
            for (int k = 0; k < i.count; k++)
                if (is_predicate(i.operands[k]))
                    Writer<LANES>{w, ALL_LANES}.write_predicate(i.operands[k], bits);
            g.pc++;
            return now + p(P_LATENCY_VARIABLE);
        }
        case OP_BRA:
        case OP_BRA_DIVERGENT:
        case OP_CALL:
        case OP_RET:
        case OP_EXIT:
        case OP_BSSY:
        case OP_BSYNC:
        case OP_BREAK:
        case OP_BAR:
        case OP_WARPSYNC:
            control(w, g, i, mask, next);
            return now;
        case OP_LDG:
        case OP_STG:
        case OP_RED:
        case OP_ATOM:
        case OP_LDS:
        case OP_STS:
        case OP_LDL:
        case OP_STL:
        case OP_LDGSTS:
        case OP_SHFL: {
            const double done = access(w, i, mask, q);
            g.pc++;
            return done;
        }
        case OP_SYNCS_EXCH:
        case OP_SYNCS_ARRIVE:
        case OP_SYNCS_WAIT:
            take_lsu(1, q);
            if (mask)
                use_mbarrier(w, i, mask);
            g.pc++;
            return lsu_free + p(P_LATENCY_MBARRIER);
        case OP_TMA_BOX:
        case OP_TMA_BULK:
            if (mask)
                copy(w, i);
            g.pc++;
            return now + p(P_LATENCY_VARIABLE);
        case OP_HGMMA:
            multiply_together(w, i, q);
            g.pc++;
            return now;
        case OP_PRODUCTS_ARRIVE:
            g.pc++;
            return now;
        case OP_PRODUCTS_WAIT:
            wait_for_group(w.product_groups, i);
            if (next_after > now)
                w.blocked_by = S_GMMA;
            g.pc++;
            return now;
        case OP_LDGDEPBAR:
            w.copy_groups.push_back(w.copies);
            g.pc++;
            return w.copies;
        case OP_DEPBAR: {
            wait_for_group(w.copy_groups, i);
            g.pc++;
            return now;
        }
        default:
            if (i.op == OP_LDSM)
                throw Unsupported("the model does not follow LDSM");
            calculate(w, i, mask);
            g.pc++;
            return now + (i.pipe == PIPE_XU ? p(P_LATENCY_XU) : p(P_LATENCY_VARIABLE));
        }
    }

    void calculate(Warp& w, const Instruction& i, u32 mask)
    {
        if (!mask)
            return;
        if (i.pipe == PIPE_UNIFORM)
            compute<1>(w, constants, i, 1);
        else
            compute<LANES>(w, constants, i, mask);
    }

    void special(Warp& w, const Instruction& i, u32 mask)
    {
        const int x = int(setup.block[0]), y = int(setup.block[1]);
        Lanes values;
        for (int l = 0; l < LANES; l++) {
            const int thread = w.number * LANES + l;
            switch (i.operands[1].value) {
            case SR_TID_X: values.v[l] = thread % x; break;
            case SR_TID_Y: values.v[l] = thread / x % y; break;
            case SR_TID_Z: values.v[l] = thread / x / y; break;
            case SR_CTAID_X: values.v[l] = u32(w.block->index[0]); break;
            case SR_CTAID_Y: values.v[l] = u32(w.block->index[1]); break;
            case SR_CTAID_Z: values.v[l] = u32(w.block->index[2]); break;
            case SR_LANEID: values.v[l] = l; break;
            default: values.v[l] = 0;
            }
        }
        if (i.operands[0].kind == UNIFORM)
            Writer<1>{w, 1}.write(i.operands[0], values.v);
        else
            Writer<LANES>{w, mask}.write(i.operands[0], values.v);
    }

    double multiply(int q, const Instruction& i)
    {
        const double cycles = i.has(MODIFIER_TF32) ? p(P_HMMA_TF32) : p(P_HMMA_F16);
        pipe_free[q][PIPE_TENSOR] = now + cycles;
        count[C_PIPE_FIRST + PIPE_TENSOR] += cycles;
        return now + p(P_LATENCY_HMMA);
    }

    // A product of a warpgroup: each warp's quarter on its scheduler's tensor core, one after the other.
    void multiply_together(Warp& w, const Instruction& i, int q)
    {
        const double cycles = double(i.bytes) / p(P_HGMMA_COLUMNS) * (i.has(MODIFIER_TF32) ? 2 : 1);
        tensor_free[q] = std::max(now, tensor_free[q]) + cycles;
        count[C_PIPE_FIRST + PIPE_TENSOR] += cycles;
        w.product = tensor_free[q] + p(P_LATENCY_HGMMA);
        for (int k = 0; k < i.count; k++)
            if (i.operands[k].kind == OTHER)  // gsb0: the last of its group
                w.product_groups.push_back(w.product);
    }

    void wait_for_group(const std::vector<double>& groups, const Instruction& i)
    {
        i64 open = 0;
        for (int k = 0; k < i.count; k++)
            if (i.operands[k].kind == IMMEDIATE)
                open = i.operands[k].value;
        const i64 at = i64(groups.size()) - 1 - open;
        if (at >= 0)
            next_after = groups[size_t(at)];
    }

    // Control flow ---------------------------------------------------------------------------------------------------

    void control(Warp& w, Group& g, const Instruction& i, u32 mask, double next)
    {
        switch (i.op) {
        case OP_BSSY:
            w.convergence[i.operands[0].number] = g.mask;
            g.pc++;
            return;
        case OP_BREAK:
            for (int k = 0; k < i.count; k++)
                if (i.operands[k].kind == CONVERGENCE)
                    w.convergence[i.operands[k].number] &= ~mask;
            g.pc++;
            return release(w);
        case OP_BSYNC: {
            const int barrier = int(i.operands[0].number);
            split(w, g, mask, g.pc, g.pc + 1, barrier);
            return release(w);
        }
        case OP_WARPSYNC:
            if (w.groups.size() == 1) {
                g.pc++;
                return;
            }
            w.convergence[15] = w.lanes;
            split(w, g, mask, g.pc, g.pc + 1, 15);
            return release(w);
        case OP_BRA_DIVERGENT:
            g.pc++;
            return;
        case OP_CALL:
            return jump(w, g, mask, int(i.operands[0].value), next);
        case OP_RET: {
            Lanes t;
            const u32* address = Reader<LANES>{w, constants}.read(i.operands[0], t);
            return jump(w, g, mask, mask ? int(address[__builtin_ctz(mask)] / 16) : 0, next);
        }
        case OP_BRA: {
            int target = 0;
            for (int k = 0; k < i.count; k++)
                if (is_predicate(i.operands[k]))
                    mask &= Reader<LANES>{w, constants}.predicate(i.operands[k]);
                else if (i.operands[k].kind == LABEL)
                    target = int(i.operands[k].value);
            if (i.has(MODIFIER_ANY) && mask)
                mask = g.mask;
            return jump(w, g, mask, target, next);
        }
        case OP_EXIT:
            return leave(w, g, mask);
        default:
            return synchronise(w, g, i, mask);
        }
    }

    // Lanes of the mask go to `place`, blocked there; the others to `rest`.
    void split(Warp& w, Group& g, u32 mask, int place, int rest, int blocked)
    {
        const u32 others = g.mask & ~mask;
        if (!mask) {
            g.pc = rest;
            return;
        }
        g.mask = mask;
        g.pc = place;
        g.blocked = blocked;
        if (others)
            w.groups.push_back({rest, others, RUNNING});
    }

    void jump(Warp& w, Group& g, u32 taken, int target, double next)
    {
        const u32 others = g.mask & ~taken;
        if (taken)
            next_after = next + p(P_BRANCH_TAKEN);
        if (!taken)
            g.pc++;
        else if (!others)
            g.pc = target;
        else {
            g.mask = others;
            g.pc++;
            w.groups.push_back({target, taken, RUNNING});
        }
        if (w.groups.size() > 1)
            merge(w);
    }

    static void merge(Warp& w)
    {
        auto& groups = w.groups;
        for (size_t a = 0; a < groups.size(); a++)
            for (size_t b = a + 1; b < groups.size();)
                if (groups[a].pc == groups[b].pc && groups[a].blocked == groups[b].blocked) {
                    groups[a].mask |= groups[b].mask;
                    groups.erase(groups.begin() + long(b));
                } else
                    b++;
    }

    // Lanes that all wait at one convergence barrier go on together.
    void release(Warp& w)
    {
        for (bool again = true; again;) {
            again = false;
            for (Group& g : w.groups) {
                if (g.blocked < 0 || g.blocked >= 16)
                    continue;
                const int barrier = g.blocked, pc = g.pc;
                u32 here = 0;
                for (Group& h : w.groups)
                    if (h.blocked == barrier && h.pc == pc)
                        here |= h.mask;
                if (w.convergence[barrier] & w.lanes & ~here)
                    continue;
                for (Group& h : w.groups)
                    if (h.blocked == barrier && h.pc == pc) {
                        h.blocked = RUNNING;
                        h.pc++;
                    }
                merge(w);
                again = true;
                break;
            }
        }
    }

    void leave(Warp& w, Group& g, u32 mask)
    {
        w.lanes &= ~mask;
        const u32 staying = g.mask & ~mask;
        if (staying) {
            g.mask = staying;
            g.pc++;
        } else
            w.groups.erase(w.groups.begin() + (&g - &w.groups[0]));
        if (!w.lanes || w.groups.empty()) {
            w.done = true;
            w.block->live--;
        } else
            release(w);
        for (int id = 0; id < BARRIERS; id++)
            if (w.block->arrived[id])
                complete_barrier(*w.block, id, w.block->live);
    }

    void synchronise(Warp& w, Group& g, const Instruction& i, u32 mask)
    {
        if (!mask) {
            g.pc++;
            return;
        }
        i64 id = 0, warps_wanted = w.block->live;
        int found = 0;
        for (int k = 0; k < i.count; k++) {
            if (is_predicate(i.operands[k]))
                continue;
            Lanes t;
            const u32 value = Reader<LANES>{w, constants}.read(i.operands[k], t)[__builtin_ctz(mask)];
            if (found++ == 0)
                id = value % BARRIERS;
            else
                warps_wanted = value / LANES;
        }
        if (i.has(MODIFIER_ARV)) {
            g.pc++;
            w.block->arrived[id]++;
            return complete_barrier(*w.block, int(id), int(warps_wanted));
        }
        g.blocked = AT_BARRIER + int(id);
        for (const Group& h : w.groups)
            if (h.blocked == RUNNING)
                return;  // the warp's other lanes come first
        w.waiting = true;
        w.block->arrived[id]++;
        barrier_free = std::max(now, barrier_free) + p(P_BARRIER_WARP);
        complete_barrier(*w.block, int(id), int(warps_wanted));
    }

    void complete_barrier(Block& block, int id, int wanted)
    {
        if (block.arrived[id] < wanted)
            return;
        block.arrived[id] = 0;
        const double over = std::max(now, barrier_free) + p(P_LATENCY_BARRIER);
        for (auto& each : block.warps) {
            Warp& w = *each;
            bool here = false;
            for (Group& g : w.groups)
                if (g.blocked == AT_BARRIER + id) {
                    g.blocked = RUNNING;
                    g.pc++;
                    here = true;
                }
            if (here) {
                w.waiting = false;
                merge(w);
                prepare(w, over);
                w.blocked_by = S_BARRIER;
                next_after = std::max(next_after, over);
            }
        }
    }

    // mbarriers and the copy engine ------------------------------------------------------------------------------------

    void use_mbarrier(Warp& w, const Instruction& i, u32 mask)
    {
        u64 at[LANES];
        addresses(w, memory_operand(i), false, at);
        const u32 place = u32(at[__builtin_ctz(mask)]) & SHARED_ADDRESS;
        Mbarrier& barrier = w.block->mbarriers[place];
        Lanes t;
        const Operand& last = i.operands[i.count - 1];
        if (i.op == OP_SYNCS_EXCH) {
            constexpr i64 FULL = 0x100000;  // less the arrivals that are expected, times two
            barrier.expected = barrier.pending = FULL - (Reader<LANES>{w, constants}.read(last, t)[0] >> 1);
        } else if (i.op == OP_SYNCS_ARRIVE) {
            if (!i.has(MODIFIER_A1T0))
                barrier.bytes += Reader<LANES>{w, constants}.read(last, t)[__builtin_ctz(mask)];
            barrier.pending -= __builtin_popcount(mask);
            complete_phase(barrier);
        } else {
            const u32 parity = Reader<LANES>{w, constants}.read(last, t)[__builtin_ctz(mask)] >> 31;
            Writer<LANES>{w, mask}.write_predicate(i.operands[0], ALL_LANES);
            if (barrier.parity != parity)
                return;  // that phase is over
            barrier.waiters.push_back({&w, parity});
            w.waiting = true;
        }
    }

    void complete_phase(Mbarrier& barrier)
    {
        if (barrier.pending > 0 || barrier.bytes != 0)
            return;
        barrier.parity ^= 1;
        barrier.pending = barrier.expected;
        for (const auto& waiter : barrier.waiters) {
            waiter.warp->waiting = false;
            prepare(*waiter.warp, now + p(P_LATENCY_MBARRIER));
            waiter.warp->blocked_by = S_BARRIER;
        }
        barrier.waiters.clear();
    }

    // Bytes that have come in by now.
    void deliver()
    {
        while (!events.empty() && events.top().time <= now) {
            const Event event = events.top();
            events.pop();
            Mbarrier& barrier = event.block->mbarriers[event.barrier];
            barrier.bytes -= event.bytes;
            complete_phase(barrier);
        }
    }

    u32 uniform(const Warp& w, i64 number) const { return number == URZ ? 0 : w.uniform[number]; }

    // A copy into shared memory by the copy engine, which signals an mbarrier.
    void copy(Warp& w, const Instruction& i)
    {
        const i64 to = i.operands[0].uniform, from = i.operands[1].uniform;
        const u32 barrier = uniform(w, to + 1) & SHARED_ADDRESS;
        const u64 address = u64(uniform(w, from)) | u64(uniform(w, from + 1)) << 32;
        i64 bytes = 0;
        if (i.op == OP_TMA_BULK) {
            constexpr i64 UNIT = 16;
            bytes = uniform(w, i.operands[2].number) * UNIT;
            touch(address, bytes);
        } else {
            const TensorMap* map = nullptr;
            for (i64 k = 0; k < setup.map_count; k++)
                if (setup.maps[k].address == address)
                    map = &setup.maps[k];
            if (!map)
                throw Unsupported("a copy through a tensor map that the launch was not given");
            bytes = touch_box(*map, w, to + 2);
        }
        const double sectors = double(bytes) / SECTOR;
        const double there = fetch(now, sectors * p(P_TMA_SECTOR)) + p(P_LATENCY_TMA);
        events.push({there, w.block, barrier, bytes});
    }

    void touch(u64 address, i64 bytes)
    {
        if (footprint)
            for (u64 sector = address / SECTOR; sector <= (address + u64(bytes) - 1) / SECTOR; sector++)
                touched.push_back(sector);
    }

    // The bytes of a box whose coordinates are in uniform registers from `first` on; marks what it reads.
    i64 touch_box(const TensorMap& map, const Warp& w, i64 first)
    {
        constexpr i64 ITEM = 2;
        i64 at[5] = {}, bytes = ITEM;
        for (i64 d = 0; d < map.rank; d++)
            at[d] = i32(uniform(w, first + d));
        if (map.im2col) {
            bytes *= map.box[0] * map.box[1];
            if (!footprint)
                return bytes;
            const auto steps_to = [&](int axis, i64 to) {
                return (to - map.lower[axis] + map.steps[axis] - 1) / map.steps[axis];
            };
            const i64 columns = steps_to(0, map.dims[1] + map.upper[0]), rows = steps_to(1, map.dims[2] + map.upper[1]);
            for (i64 pixel = 0; pixel < map.box[1]; pixel++) {
                const i64 x = steps_to(0, at[1]) + pixel, y = steps_to(1, at[2]) + x / columns, n = at[3] + y / rows;
                const i64 column = map.lower[0] + x % columns * map.steps[0];
                const i64 row = map.lower[1] + y % rows * map.steps[1];
                if (n < map.dims[3] && column >= 0 && column < map.dims[1] && row >= 0 && row < map.dims[2])
                    touch(map.base + u64(at[0] * ITEM + column * map.strides[0] + row * map.strides[1]
                                         + n * map.strides[2]),
                          map.box[0] * ITEM);
            }
            return bytes;
        }
        for (i64 d = 0; d < map.rank; d++)
            bytes *= map.box[d];
        if (footprint)
            for (i64 j = 0; j < map.box[1]; j++)
                for (i64 k = 0; k < (map.rank > 2 ? map.box[2] : 1); k++)
                    if (at[1] + j < map.dims[1] && (map.rank < 3 || at[2] + k < map.dims[2]))
                        touch(map.base + u64(at[0] * ITEM + (at[1] + j) * map.strides[0]
                                             + (map.rank > 2 ? (at[2] + k) * map.strides[1] : 0)),
                              map.box[0] * ITEM);
        return bytes;
    }

    // Memory ---------------------------------------------------------------------------------------------------------

    // Takes L1's and shared memory's data path for some turns; returns when they are over.
    double take_lsu(double turns, int q)
    {
        const double arrived = now + p(P_ADDRESS);
        lsu_free = std::max(arrived, lsu_free) + turns;
        port_free[q] = std::max(arrived, port_free[q]) + turns * p(P_PORT);
        lsu_busy += turns;
        const double served = std::max(lsu_free, port_free[q]);
        queue_left = served - turns;
        queue[q].push_back(queue_left);
        return served;
    }

    const Operand& memory_operand(const Instruction& i) const
    {
        for (int k = 0; k < i.count; k++)
            if (i.operands[k].kind == MEMORY)
                return i.operands[k];
        throw Unsupported("a memory instruction without an address");
    }

    void addresses(Warp& w, const Operand& o, bool global, u64* to) const
    {
        u64 base = u64(o.value);
        if (o.uniform != URZ)
            base += global ? u64(w.uniform[o.uniform]) | u64(w.uniform[o.uniform + 1]) << 32 : w.uniform[o.uniform];
        if (o.number == RZ) {
            std::fill(to, to + LANES, global ? base : u32(base));
            return;
        }
        const u32 *low = w.row(int(o.number)), *high = w.row(int(o.number) + 1);
        if (global)
            for (int l = 0; l < LANES; l++)
                to[l] = (u64(low[l]) | u64(high[l]) << 32) + base;
        else
            for (int l = 0; l < LANES; l++)
                to[l] = u32(low[l] * u32(o.scale) + u32(base));
    }

    double access(Warp& w, const Instruction& i, u32 mask, int q)
    {
        if (!mask) {
            take_lsu(1, q);
            return lsu_free + lat_l1;
        }
        u64 at[LANES];
        switch (i.op) {
        case OP_SHFL:
            shuffle(w, i, mask);
            return take_lsu(1, q) + lat_shared;
        case OP_LDL:
        case OP_STL:
            return spill(w, i, mask, q);
        case OP_LDS:
        case OP_STS:
            return shared(w, i, mask, q, at);
        }
        const Operand& o = i.op == OP_LDGSTS ? i.operands[1] : memory_operand(i);
        addresses(w, o, true, at);
        Access a;
        coalesce(a, at, mask, int(i.bytes));
        remember(a, i);
        switch (i.op) {
        case OP_LDG:
            return load(w, i, a, mask, q);
        case OP_LDGSTS:
            w.copies = std::max(w.copies, load(w, i, a, mask, q) + p(P_LATENCY_COPY));
            return queue_left + p(P_OPERANDS_READ);
        case OP_STG:
            return store(i, a, at, mask, q);
        default:
            return reduce(w, i, a, at, mask, q);
        }
    }

    void remember(const Access& a, const Instruction& i)
    {
        if (i.op == OP_STG || i.op == OP_RED || i.op == OP_ATOM)
            result.written |= 1ll << (a.line[0] * LINE >> ARRAY_SHIFT);
        if (!footprint)
            return;
        for (int k = 0; k < a.lines; k++)
            for (int s = 0; s < LINE / SECTOR; s++)
                if (a.mask[k] >> s & 1)
                    touched.push_back(a.line[k] * (LINE / SECTOR) + s);
    }

    double load(Warp& w, const Instruction& i, const Access& a, u32 mask, int q)
    {
        const bool bypass = i.has(MODIFIER_BYPASS);
        const double turns = std::max<double>(a.wavefronts, a.lines / p(P_TAGS));
        const double served = take_lsu(turns, q);
        count[C_LOADS]++;
        count[C_LOAD_SECTORS] += a.sectors;
        count[C_LOAD_BYTES] += double(i.bytes) * __builtin_popcount(mask);
        double done = served + lat_l1;
        int missing = 0;
        struct Fill {
            L1::Entry* line;
            int sector;
        };
        Fill fills[2 * LANES * 4];
        for (int k = 0; k < a.lines; k++) {
            if (bypass) {
                missing += __builtin_popcount(a.mask[k]);
                continue;
            }
            auto& line = l1.find(a.line[k]);
            for (int s = 0; s < LINE / SECTOR; s++) {
                if (!(a.mask[k] >> s & 1))
                    continue;
                if (line.valid >> s & 1) {
                    count[C_L1_HITS]++;
                    done = std::max(done, line.ready[s]);
                } else {
                    line.valid |= 1u << s;
                    fills[missing++] = {&line, s};
                }
            }
        }
        if (missing) {
            const double there = fetch(served, missing);
            lsu_free += missing * p(P_FILL_SECTOR);  // what comes in takes L1's data path too
            lsu_busy += missing * p(P_FILL_SECTOR);
            if (!bypass)
                for (int k = 0; k < missing; k++)
                    fills[k].line->ready[fills[k].sector] = there;
            done = std::max(done, there);
        }
        if (i.op == OP_LDG) {
            const Lanes zeros = {};
            for (int k = 0; k < std::max<i64>(1, i.bytes / 4); k++)
                Writer<LANES>{w, mask}.write(i.operands[0].kind == MEMORY ? i.operands[1] : i.operands[0], zeros.v, k);
        }
        return done;
    }

    // Sectors from L2, a share of them from device memory; returns when the last is there.
    double fetch(double time, double sectors)
    {
        const double begin = std::max(time, l2_free);
        l2_free = begin + sectors / p(P_L2_SECTORS);
        count[C_L2_READS] += sectors;
        double there = l2_free + p(P_LATENCY_L2);
        dram_share += sectors * p(P_DRAM_READ_SHARE);
        if (dram_share >= 1) {
            const double whole = std::floor(dram_share);
            dram_share -= whole;
            dram_free = std::max(begin, dram_free) + whole / p(P_DRAM_SECTORS);
            there = std::max(there + p(P_LATENCY_DRAM), dram_free + p(P_LATENCY_L2) + p(P_LATENCY_DRAM));
        }
        return there;
    }

    // What L2 takes in; a long queue there holds up the multiprocessor.
    void to_l2(double time, double cycles, double sectors)
    {
        store_free = std::max(time, store_free) + cycles;
        write_share += sectors * p(P_DRAM_WRITE_SHARE);
        if (write_share >= 1) {
            const double whole = std::floor(write_share);
            write_share -= whole;
            dram_free = std::max(time, dram_free) + whole / p(P_DRAM_SECTORS);
            store_free = std::max(store_free, dram_free - p(P_STORES_IN_FLIGHT));
        }
        lsu_free = std::max(lsu_free, store_free - p(P_STORES_IN_FLIGHT));
    }

    double store(const Instruction& i, const Access& a, const u64* at, u32 mask, int q)
    {
        const double turns = std::max<double>({1.0, double(a.wavefronts), a.lines / p(P_TAGS)});
        const double served = take_lsu(turns, q);
        const int partial = partly_written(a, at, mask, int(i.bytes));
        count[C_STORES]++;
        count[C_STORE_SECTORS] += a.sectors;
        count[C_STORE_BYTES] += double(i.bytes) * __builtin_popcount(mask);
        count[C_PARTIAL_SECTORS] += partial;
        to_l2(served, a.lines * p(P_STORE_LINE) + a.sectors * p(P_STORE_SECTOR) + partial * p(P_PARTIAL_SECTOR),
              a.sectors);
        return lsu_free + lat_store;
    }

    double reduce(Warp& w, const Instruction& i, const Access& a, const u64* at, u32 mask, int q)
    {
        const double turns = std::max<double>({1.0, double(a.wavefronts), a.lines / p(P_TAGS)});
        const double served = take_lsu(turns, q);
        count[C_REDUCTIONS]++;
        count[C_REDUCTION_SECTORS] += a.sectors;
        to_l2(served, a.sectors * same_word(at, mask) * p(P_REDUCTION_SECTOR), a.sectors);
        if (i.op != OP_ATOM)
            return lsu_free + lat_store;
        const Lanes zeros = {};
        for (int k = 0; k < i.count; k++)
            if (i.operands[k].kind == REGISTER) {
                Writer<LANES>{w, mask}.write(i.operands[k], zeros.v);
                break;
            }
        return store_free + p(P_LATENCY_L2);
    }

    // The most lanes that want one word; they come one after the other.
    static int same_word(const u64* at, u32 mask)
    {
        int most = 1, run = 0;
        u64 before = ~0ull;
        for (int l = 0; l < LANES; l++)
            if (mask >> l & 1) {
                run = at[l] == before ? run + 1 : 1;
                before = at[l];
                most = std::max(most, run);
            }
        return most;
    }

    double shared(Warp& w, const Instruction& i, u32 mask, int q, u64* at)
    {
        addresses(w, memory_operand(i), false, at);
        const int turns = wavefronts(at, mask, int(i.bytes));
        const double served = take_lsu(turns, q);
        const bool is_load = i.op == OP_LDS;
        count[is_load ? C_SHARED_LOADS : C_SHARED_STORES]++;
        count[is_load ? C_SHARED_LOAD_WAVEFRONTS : C_SHARED_STORE_WAVEFRONTS] += turns;
        const Operand& data = is_load ? i.operands[0] : i.operands[1];
        auto& memory = w.block->shared;
        for (int k = 0; k < std::max<i64>(1, i.bytes / 4); k++) {
            if (data.number == RZ && is_load)
                break;
            u32* row = data.number == RZ ? nullptr : w.row(int(data.number) + k);
            for (u32 rest = mask; rest; rest &= rest - 1) {
                const int l = __builtin_ctz(rest);
                const u64 place = (at[l] & SHARED_ADDRESS) + 4 * u64(k);
                const int size = int(std::min<i64>(4, i.bytes));
                if (place + size > memory.size())
                    continue;
                if (is_load) {
                    row[l] = 0;
                    memcpy(&row[l], &memory[place], size);
                } else if (row)
                    memcpy(&memory[place], &row[l], size);
                else
                    memset(&memory[place], 0, size);
            }
        }
        return served + (is_load ? lat_shared : lat_store);
    }

    double spill(Warp& w, const Instruction& i, u32 mask, int q)
    {
        u64 at[LANES];
        const bool is_load = i.op == OP_LDL;
        const Operand& data = is_load ? i.operands[0] : i.operands[1];
        addresses(w, memory_operand(i), false, at);
        const int words = std::max<int>(1, int(i.bytes) / 4);
        const double served = take_lsu(words, q);
        for (int k = 0; k < words; k++)
            for (u32 rest = mask; rest; rest &= rest - 1) {
                const int l = __builtin_ctz(rest);
                u32& word = w.local[u32(at[l] + 4 * k) * LANES + l];
                if (is_load && data.number != RZ)
                    w.row(int(data.number) + k)[l] = word;
                else if (!is_load)
                    word = data.number == RZ ? 0 : w.row(int(data.number) + k)[l];
            }
        return served + lat_l1;
    }

    void shuffle(Warp& w, const Instruction& i, u32 mask)
    {
        const Reader<LANES> in{w, constants};
        Lanes t0, t1, values;
        const int s = is_predicate(i.operands[0]) ? 1 : 0;
        const u32 *from = in.read(i.operands[s + 1], t0), *lane = in.read(i.operands[s + 2], t1);
        for (int l = 0; l < LANES; l++) {
            int source = int(lane[l]) & 31;
            if (i.has(MODIFIER_BFLY))
                source = l ^ source;
            else if (i.has(MODIFIER_UP))
                source = l - source;
            else if (i.has(MODIFIER_DOWN))
                source = l + source;
            values.v[l] = from[source >= 0 && source < LANES ? source : l];
        }
        const Writer<LANES> out{w, mask};
        if (s)
            out.write_predicate(i.operands[0], ALL_LANES);
        out.write(i.operands[s], values.v);
    }

    // The first block's sectors as runs: array, first byte, bytes.
    void write_footprint()
    {
        std::sort(touched.begin(), touched.end());
        touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
        constexpr u64 OFFSET = (1ull << ARRAY_SHIFT) - 1;
        for (size_t k = 0; k < touched.size();) {
            size_t end = k + 1;
            while (end < touched.size() && touched[end] == touched[end - 1] + 1)
                end++;
            if (result.piece_count < result.piece_limit) {
                i64* piece = result.pieces + 3 * result.piece_count;
                const u64 byte = touched[k] * SECTOR;
                piece[0] = i64(byte >> ARRAY_SHIFT);
                piece[1] = i64(byte & OFFSET);
                piece[2] = i64(end - k) * SECTOR;
            }
            result.piece_count++;
            k = end;
        }
    }
};

}  // namespace

extern "C" int simulate(const Setup* setup, Result* result)
{
    try {
        Multiprocessor(*setup, *result).run();
        return 0;
    } catch (const std::exception& error) {
        strncpy(result->message, error.what(), sizeof result->message - 1);
        return 1;
    }
}
