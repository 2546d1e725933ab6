// Which warp issues next, and when: scoreboards, register banks, the instruction cache, and busy units.
#pragma once

#include "multiprocessor.h"

namespace {

inline Group* Multiprocessor::current(Warp& w)
{
    if (w.groups.size() == 1)
        return w.groups[0].blocked == RUNNING ? &w.groups[0] : nullptr;
    Group* best = nullptr;
    for (Group& g : w.groups)
        if (g.blocked == RUNNING && (!best || g.pc < best->pc))
            best = &g;
    return best;
}

inline void Multiprocessor::prepare(Warp& w, double time)
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

inline Multiprocessor::Sources Multiprocessor::sources_of(const Instruction& i)
{
    Sources sources;
    if (i.pipe != PIPE_FMA && i.pipe != PIPE_HEAVY && i.pipe != PIPE_ALU && i.pipe != PIPE_HALF)
        return sources;
    for (int k = is_predicate(i.operands[0]) ? 0 : 1; k < i.count && sources.count < 6; k++)
        if (i.operands[k].kind == REGISTER && i.operands[k].number != RZ)
            sources.operands[sources.count++] = {k, int(i.operands[k].number), bool(i.operands[k].reused)};
    return sources;
}

inline double Multiprocessor::banks_free(int q, const Warp* w, const Sources& from, int (&reads)[2]) const
{
    reads[0] = reads[1] = 0;
    for (int k = 0; k < from.count; k++) {
        const auto& source = from.operands[k];
        if (reuse_cache[q].warp != w || reuse_cache[q].number[source.place] != source.number)
            reads[source.number & 1]++;
    }
    const double window = p(P_READ_WINDOW);
    return std::max(reads[0] ? bank_free[q][0] + reads[0] - window : 0.0,
                    reads[1] ? bank_free[q][1] + reads[1] - window : 0.0);
}

inline void Multiprocessor::take_banks(int q, const Warp* w, const Sources& from, const int (&reads)[2])
{
    for (int bank = 0; bank < 2; bank++)
        if (reads[bank])
            bank_free[q][bank] = std::max(bank_free[q][bank], now) + reads[bank];
    std::fill(reuse_cache[q].number, reuse_cache[q].number + MAX_OPERANDS, -1);
    reuse_cache[q].warp = w;
    for (int k = 0; k < from.count; k++)
        if (from.operands[k].reused)
            reuse_cache[q].number[from.operands[k].place] = from.operands[k].number;
}

inline double Multiprocessor::fetched(int pc, double time)
{
    constexpr int INSTRUCTIONS = 8;
    CodeLine& line = code_lines[size_t(pc / INSTRUCTIONS)];
    if (line.fetch >= 0 && double(fetches - line.fetch) < p(P_CODE_LINES))
        return line.ready;
    // The launch's previous run has left its code in the next cache, if it fits there (measured: straight, 256 to 1024,
    // one warp: the first of 20 trips takes 5 cycles a line more than the others, not as many as from L2).
    const bool left = line.fetch < 0 && double(code_lines.size()) <= p(P_CODE_LINES_NEAR);
    const bool near = left || (line.fetch >= 0 && double(fetches - line.fetch) < p(P_CODE_LINES_NEAR));
    fetch_free = std::max(time, fetch_free) + p(near ? P_CODE_NEAR : P_CODE_FAR);
    line = {fetches++, fetch_free};
    return line.ready;
}

inline double Multiprocessor::unit_free(int q, const Instruction& i, int& reason)
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

inline void Multiprocessor::take_unit(int q, const Instruction& i)
{
    const double cost = p(Parameter(P_PIPE_FIRST + i.pipe));
    count[C_PIPE_FIRST + i.pipe] += cost;
    if (i.pipe == PIPE_FMA) {  // first the half without integers
        const bool lite = lite_free[q] <= now;
        (lite ? lite_free[q] : pipe_free[q][PIPE_HEAVY]) = now + 2 * cost;
    } else if (i.pipe != PIPE_NONE) {
        pipe_free[q][i.pipe] = now + cost;
    }
}

inline bool Multiprocessor::better(const Warp* a, const Warp* b, int q) const
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

inline bool Multiprocessor::issue(int q)
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

inline void Multiprocessor::account(Warp& w, const Instruction& i, int pc)
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

}  // namespace
