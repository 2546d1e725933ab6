// The path of loads, stores and copies: L1 and shared memory, L2, device memory.
#pragma once

#include "multiprocessor.h"

namespace {

inline void Multiprocessor::copy(Warp& w, const Instruction& i)
{
    const i64 to = i.operands[0].uniform, from = i.operands[1].uniform;
    const u32 barrier = uniform(w, to + 1) & SHARED_ADDRESS;
    const u64 address = u64(uniform(w, from)) | u64(uniform(w, from + 1)) << 32;
    i64 bytes = 0;
    u64 source = address;
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
        source = map->base;
    }
    const i64 array = i64(source >> ARRAY_SHIFT) - 1;
    const double cost = array < setup.array_count ? setup.copy_costs[array] : 1;
    const double sectors = double(bytes) / SECTOR * cost;
    const double there = fetch(now, sectors * p(P_TMA_SECTOR)) + p(P_LATENCY_TMA);
    events.push({there, w.block, barrier, bytes});
}

inline void Multiprocessor::touch(u64 address, i64 bytes)
{
    if (footprint)
        for (u64 sector = address / SECTOR; sector <= (address + u64(bytes) - 1) / SECTOR; sector++)
            touched.push_back(sector);
}

inline i64 Multiprocessor::touch_box(const TensorMap& map, const Warp& w, i64 first)
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

inline double Multiprocessor::take_lsu(double turns, int q, double of_scheduler)
{
    const double arrived = now + p(P_ADDRESS);
    lsu_free = std::max(arrived, lsu_free) + turns;
    port_free[q] = std::max(arrived, port_free[q]) + of_scheduler * p(P_PORT);
    lsu_busy += turns;
    const double served = std::max(lsu_free, port_free[q]);
    queue_left = served - turns;
    queue[q].push_back(queue_left);
    return served;
}

inline const Operand& Multiprocessor::memory_operand(const Instruction& i) const
{
    for (int k = 0; k < i.count; k++)
        if (i.operands[k].kind == MEMORY)
            return i.operands[k];
    throw Unsupported("a memory instruction without an address");
}

inline void Multiprocessor::addresses(Warp& w, const Operand& o, bool global, u64* to) const
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

inline double Multiprocessor::access(Warp& w, const Instruction& i, u32 mask, int q)
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
    if (i.op == OP_LDGSTS && !i.has(MODIFIER_BYPASS))  // read from L1, then written to shared memory
        a.wavefronts = copied(at, mask) + int(std::ceil(a.sectors / p(P_COPY_SECTORS)));
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

inline void Multiprocessor::remember(const Access& a, const Instruction& i)
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

inline double Multiprocessor::load(Warp& w, const Instruction& i, const Access& a, u32 mask, int q)
{
    const bool bypass = i.has(MODIFIER_BYPASS);
    const double turns = std::max<double>(a.wavefronts, a.lines / p(P_TAGS));
    const double served = take_lsu(turns, q, i.op == OP_LDG ? turns : 1);  // a copy's words bypass the scheduler's port
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
        const double there = fetch(served, missing, w.block->blocks_of_tile);
        lsu_free += missing * p(P_FILL_SECTOR);  // fills use L1's data path too
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

inline double Multiprocessor::fetch(double time, double sectors, double fewer)
{
    const double begin = std::max(time, l2_free);
    l2_free = begin + sectors / std::min(p(P_L2_SECTORS_OF_ONE), p(P_L2_SECTORS) * fewer);
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

inline void Multiprocessor::to_l2(double time, double cycles, double sectors)
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

inline double Multiprocessor::store(const Instruction& i, const Access& a, const u64* at, u32 mask, int q)
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

inline double Multiprocessor::reduce(Warp& w, const Instruction& i, const Access& a, const u64* at, u32 mask, int q)
{
    const double turns = std::max<double>({1.0, double(a.wavefronts), a.lines / p(P_TAGS)});
    const double served = take_lsu(turns, q);
    count[C_REDUCTIONS]++;
    count[C_REDUCTION_SECTORS] += a.sectors;
    to_l2(served, a.sectors * same_word(at, mask) * p(P_REDUCTION_SECTOR), a.sectors);
    if (i.op != OP_ATOM)
        return lsu_free + lat_store;
    Lanes before = {};
    if (i.has(MODIFIER_INC))
        before = counted(w, i);
    for (int k = 0; k < i.count; k++)
        if (i.operands[k].kind == REGISTER) {
            Writer<LANES>{w, mask}.write(i.operands[k], before.v);
            break;
        }
    return store_free + p(P_LATENCY_L2);
}

// What a counter that wraps after `last` held when this block incremented it.  last + 1 neighbouring blocks increment
// it, in their order; the first of them finds it full, so the last finds last - 1.
inline Lanes Multiprocessor::counted(Warp& w, const Instruction& i)
{
    Lanes values, before;
    const u32* last = Reader<LANES>{w, constants}.read(i.operands[i.count - 1], values);
    for (int l = 0; l < LANES; l++) {
        const u32 arrival = u32(w.block->number % (i64(last[l]) + 1));
        before.v[l] = arrival ? arrival - 1 : last[l];
        if (arrival && arrival == last[l])
            w.block->blocks_of_tile = double(last[l]) + 1;
    }
    return before;
}

inline int Multiprocessor::same_word(const u64* at, u32 mask)
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

inline double Multiprocessor::shared(Warp& w, const Instruction& i, u32 mask, int q, u64* at)
{
    addresses(w, memory_operand(i), false, at);
    const bool is_load = i.op == OP_LDS;
    const int turns = wavefronts(at, mask, int(i.bytes), is_load);
    const double served = take_lsu(turns, q);
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

inline double Multiprocessor::spill(Warp& w, const Instruction& i, u32 mask, int q)
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

}  // namespace
