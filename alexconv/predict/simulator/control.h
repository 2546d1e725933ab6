// Control flow: branches, divergence and reconvergence, barriers and mbarriers.
#pragma once

#include "multiprocessor.h"

namespace {

inline void Multiprocessor::control(Warp& w, Group& g, const Instruction& i, u32 mask, double next)
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
        release(w);
        return arrive_in_part(w);
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

inline void Multiprocessor::split(Warp& w, Group& g, u32 mask, int place, int rest, int blocked)
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

inline void Multiprocessor::jump(Warp& w, Group& g, u32 taken, int target, double next)
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

inline void Multiprocessor::merge(Warp& w)
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

inline void Multiprocessor::release(Warp& w)
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

inline void Multiprocessor::leave(Warp& w, Group& g, u32 mask)
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

inline void Multiprocessor::synchronise(Warp& w, Group& g, const Instruction& i, u32 mask)
{
    if (!mask) {
        g.pc++;
        return;
    }
    i64 id = 0, warps_wanted = w.block->live;
    int count = 0;
    for (int k = 0; k < i.count; k++) {
        if (is_predicate(i.operands[k]))
            continue;
        Lanes t;
        const u32 value = Reader<LANES>{w, constants}.read(i.operands[k], t)[__builtin_ctz(mask)];
        if (count++ == 0)
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

// A warp arrives at a barrier once its other lanes wait to reconverge with those at the barrier: nvcc generates such
// code where one thread uses the result of a block-wide reduction.
inline void Multiprocessor::arrive_in_part(Warp& w)
{
    int id = -1;
    for (const Group& g : w.groups) {
        if (g.blocked == RUNNING)
            return;
        if (g.blocked >= AT_BARRIER)
            id = g.blocked - AT_BARRIER;
    }
    if (id < 0 || w.waiting)
        return;
    w.waiting = true;
    w.block->arrived[id]++;
    barrier_free = std::max(now, barrier_free) + p(P_BARRIER_WARP);
    complete_barrier(*w.block, id, w.block->live);
}

inline void Multiprocessor::complete_barrier(Block& block, int id, int wanted)
{
    if (block.arrived[id] < wanted)
        return;
    block.arrived[id] = 0;
    const double over = std::max(now, barrier_free) + p(P_LATENCY_BARRIER);
    for (auto& pointer : block.warps) {
        Warp& w = *pointer;
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

inline void Multiprocessor::use_mbarrier(Warp& w, const Instruction& i, u32 mask)
{
    u64 at[LANES];
    addresses(w, memory_operand(i), false, at);
    const u32 place = u32(at[__builtin_ctz(mask)]) & SHARED_ADDRESS;
    Mbarrier& barrier = w.block->mbarriers[place];
    Lanes t;
    const Operand& last = i.operands[i.count - 1];
    if (i.op == OP_SYNCS_EXCH) {
        constexpr i64 FULL = 0x100000;  // the operand is 2 * (FULL - expected arrivals)
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

inline void Multiprocessor::complete_phase(Mbarrier& barrier)
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

inline void Multiprocessor::deliver()
{
    while (!events.empty() && events.top().time <= now) {
        const Event event = events.top();
        events.pop();
        Mbarrier& barrier = event.block->mbarriers[event.barrier];
        barrier.bytes -= event.bytes;
        complete_phase(barrier);
    }
}

}  // namespace
