// Blocks of a grid on a multiprocessor: when they start, and the loop that runs them.
#pragma once

#include "multiprocessor.h"

namespace {

inline Multiprocessor::Multiprocessor(const Setup& s, Result& r)
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
    constants.literals = setup.literals;
    constants.literal_bytes = setup.literal_bytes;
}

inline void Multiprocessor::run()
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

inline void Multiprocessor::start_block(double time)
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

inline int Multiprocessor::free_slot(int q)
{
    const int slot = __builtin_ctzll(~slots[q]);
    slots[q] |= 1ull << slot;
    return slot;
}

inline double Multiprocessor::next_start(double time)
{
    last_start = std::max(time, last_start + p(P_BLOCK_INTERVAL));
    return last_start;
}

inline void Multiprocessor::retire()
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

inline void Multiprocessor::write_footprint()
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

}  // namespace
