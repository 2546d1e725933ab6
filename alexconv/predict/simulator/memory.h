// What a warp's accesses cost: lines, sectors and bank conflicts; the L1 cache.
#pragma once
#include "machine.h"

constexpr int LINE = 128, SECTOR = 32, BANKS = 32;

struct Access {
    int lines = 0, sectors = 0, wavefronts = 0, partial = 0;
    u64 line[2 * LANES];
    u32 mask[2 * LANES];  // sectors of the line

    void add(u64 byte, int bytes)
    {
        for (u64 s = byte / SECTOR; s <= (byte + bytes - 1) / SECTOR; s++) {
            const u64 number = s / (LINE / SECTOR);
            int k = lines - 1;  // consecutive lanes mostly touch the same line
            while (k >= 0 && line[k] != number)
                k--;
            if (k < 0) {
                k = lines++;
                line[k] = number;
                mask[k] = 0;
            }
            mask[k] |= 1u << s % (LINE / SECTOR);
        }
    }

    void count_sectors()
    {
        for (int k = 0; k < lines; k++)
            sectors += __builtin_popcount(mask[k]);
    }
};

// Turns that 32 banks of 4 bytes need for the words of some lanes: the most distinct words in one bank.
class Banks {
    int count[BANKS] = {}, most = 0;
    u64 words[BANKS][2 * LANES];

public:
    void add(u64 word)
    {
        const int bank = word % BANKS;
        for (int k = 0; k < count[bank]; k++)
            if (words[bank][k] == word)
                return;
        words[bank][count[bank]++] = word;
        most = std::max(most, count[bank]);
    }

    int turns() const { return most; }
};

// Whether both lanes of each pair access the same address.
inline bool in_pairs(const u64* address, u32 mask)
{
    for (u32 rest = mask; rest; rest &= rest - 1) {
        const int l = __builtin_ctz(rest), other = l ^ 1;
        if (mask >> other & 1 && address[l] != address[other])
            return false;
    }
    return true;
}

// Turns of L1 or shared memory for the words of a warp.  A turn delivers 128 bytes, one register, so vectors of 2 and 4
// words take a half and a quarter of the warp at a time; loads from shared memory take twice as many lanes where
// neighbours read the same address (measured: rates, lds64_... and lds128_...).  Lanes that access the same word share
// it.
inline int wavefronts(const u64* address, u32 mask, int bytes, bool shares)
{
    const int words = std::max(1, bytes / 4);
    int together = LANES / words;
    if (words > 1 && shares && in_pairs(address, mask))
        together *= 2;
    const u32 lanes = together == LANES ? ALL_LANES : (1u << together) - 1;
    int total = 0;
    for (int first = 0; first < LANES; first += together) {
        const u32 part = mask & lanes << first;
        if (!part)
            continue;
        const int l0 = __builtin_ctz(part);
        bool in_row = bytes >= 4, same = true;
        for (u32 rest = part; rest; rest &= rest - 1) {
            const int l = __builtin_ctz(rest);
            in_row &= address[l] == address[l0] + u64(l - l0) * bytes;
            same &= address[l] == address[l0];
        }
        if (same) {
            total++;
            continue;
        }
        if (in_row) {  // contiguous words spread evenly over the banks
            const int last = 31 - __builtin_clz(part);
            total += ((last - l0 + 1) * words + BANKS - 1) / BANKS;
            continue;
        }
        Banks banks;
        for (u32 rest = part; rest; rest &= rest - 1)
            for (int w = 0; w < words; w++)
                banks.add(address[__builtin_ctz(rest)] / 4 + w);
        total += banks.turns();
    }
    return std::max(1, total);
}

// Turns of L1 for an asynchronous copy of a warp's words into shared memory: lanes that copy the same word do not share
// it.
inline int copied(const u64* address, u32 mask)
{
    int count[BANKS] = {}, most = 1;
    for (u32 rest = mask; rest; rest &= rest - 1)
        most = std::max(most, ++count[address[__builtin_ctz(rest)] / 4 % BANKS]);
    return most;
}

// The sectors that the lanes touch, and the turns that L1's banks need.
inline void coalesce(Access& a, const u64* address, u32 mask, int bytes)
{
    a.wavefronts = wavefronts(address, mask, bytes, false);
    for (int l = 0; l < LANES; l++)
        if (mask >> l & 1)
            a.add(address[l], bytes);
    a.count_sectors();
}

// How many of the sectors are written in part only.
inline int partly_written(const Access& a, const u64* address, u32 mask, int bytes)
{
    int partial = 0;
    for (int k = 0; k < a.lines; k++)
        for (int s = 0; s < LINE / SECTOR; s++) {
            if (!(a.mask[k] >> s & 1))
                continue;
            const u64 begin = a.line[k] * LINE + s * SECTOR;
            u32 written = 0;  // bytes of the sector
            for (int l = 0; l < LANES; l++)
                if (mask >> l & 1 && address[l] + bytes > begin && address[l] < begin + SECTOR) {
                    const int from = address[l] < begin ? 0 : int(address[l] - begin);
                    const int to = int(std::min<u64>(address[l] + bytes, begin + SECTOR) - begin);
                    written |= (to - from == 32 ? ~0u : (1u << (to - from)) - 1) << from;
                }
            partial += written != ~0u;
        }
    return partial;
}

// A set-associative cache with LRU replacement; each sector records when it arrives.
class L1 {
    struct Line {
        u64 tag = ~0ull, used = 0;
        u32 valid = 0;
        double ready[LINE / SECTOR];
    };
    static constexpr int WAYS = 16;
    std::vector<Line> lines;
    size_t sets;
    u64 clock = 0;

public:
    explicit L1(i64 bytes) : sets(std::max<i64>(1, bytes / LINE / WAYS)) { lines.resize(sets * WAYS); }

    Line& find(u64 number)
    {
        u64 hash = number ^ number >> 13;
        hash *= 0x9e3779b97f4a7c15ull;
        Line* set = &lines[(hash >> 20) % sets * WAYS];
        Line* oldest = set;
        for (int k = 0; k < WAYS; k++) {
            if (set[k].tag == number) {
                set[k].used = ++clock;
                return set[k];
            }
            if (set[k].used < oldest->used)
                oldest = set + k;
        }
        oldest->tag = number;
        oldest->valid = 0;
        oldest->used = ++clock;
        return *oldest;
    }

    using Entry = Line;
};
