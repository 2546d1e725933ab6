// Products of wgmma in the build for async hazards: their operands in shared memory, their accumulators in registers.
#ifdef HOST_CUDA_HAZARDS

#include "watcher.h"

namespace host_cuda::hazards {

void Watcher::start_product(const Product& product, Site site, Effect effect)
{
    const unsigned group = me() / WARPGROUP, first_thread = group * WARPGROUP;
    products_.push_back({place_of(site), products_committed_[first_thread]});
    const std::uint32_t number = std::uint32_t(products_.size());
    constexpr unsigned group_warps = WARPGROUP / WARP;
    const unsigned of_warp = product.first_count / group_warps;
    for (unsigned w = 0; w < group_warps; ++w) {
        const unsigned warp = first_thread / WARP + w;
        known_good_ = 0;
        for (unsigned i = w * of_warp; i < (w + 1) * of_warp; ++i) read_by_product(product.first[i], warp, number);
        for (unsigned i = 0; i < product.second_count; ++i) read_by_product(product.second[i], warp, number);
    }
    for (unsigned i = 0; i < WARPGROUP; ++i)
        take_accumulators(first_thread + i, reinterpret_cast<const char*>(product.accumulators[i]),
                          product.floats * sizeof(float), number);
    waiting_products_[group].emplace_back(products_.back().group, std::move(effect));
    if (now_or_later()) carry_out_products(group, ~0u);
}

void Watcher::wait_for_products(unsigned open)
{
    const unsigned thread = me(), committed = products_committed_[thread];
    const unsigned complete = std::max(products_complete_[thread], committed > open ? committed - open : 0);
    products_complete_[thread] = complete;
    learns(thread, WARPS + thread / WARP, complete);
    ++paused_;
    carry_out_products(thread / WARPGROUP, complete);
    --paused_;
}

void Watcher::meet_products(Shadow& shadow, std::size_t number, unsigned thread, Deed deed, const Place& place)
{
    const std::uint32_t* const reads = shadow.product_reads(number);
    for (unsigned warp = 0; warp < warps_; ++warp) {
        if (!reads[warp]) continue;
        const GroupedProduct& product = products_[reads[warp] - 1];
        if (knows_product(thread, warp, product)) continue;
        const bool committed = product.group < products_committed_[warp * WARP];
        report(committed ? WAIT_PRODUCT : COMMIT_PRODUCT, PRODUCT, deed, warp * WARP, thread, product.place, place);
    }
}

void Watcher::read_by_product(std::uintptr_t address, unsigned warp, std::uint32_t number)
{
    Shadow* const shadow = shared_at(address);
    const Place& place = products_[number - 1].place;
    if (!shadow) fail("wgmma reads outside the shared memory of the block", {place.file, int(place.line)});
    const std::size_t at = shadow->number(address);
    const ChunkCell& chunk = shadow->chunk(at);
    if (unwritten(chunk, address, ChunkCell::ALL)) report(FIRST_WRITE, NOTHING, PRODUCT, warp * WARP, warp * WARP, {}, place);
    const bool stored = std::any_of(chunk.words, chunk.words + WORDS, [](const Cell& cell) { return cell.store.bytes; });
    const bool copied = chunk.bulk_copy && chunk.bulk_copy != known_good_;
    for (unsigned thread = warp * WARP; (stored || copied) && thread < (warp + 1) * WARP; ++thread) {
        if (copied) meet_bulk_copy(chunk, thread, PRODUCT, place);
        for (const Cell& cell : chunk.words) meet_stores(cell, Cell::ALL, thread, PRODUCT, place, true);
    }
    if (copied) known_good_ = chunk.bulk_copy;  // reported or not: once is enough
    shadow->product_reads(at)[warp] = number;
}

void Watcher::take_accumulators(unsigned thread, const char* begin, std::size_t bytes, std::uint32_t number)
{
    auto& all = accumulators_[thread];
    const Place& place = products_[number - 1].place;
    auto entry = std::find_if(all.begin(), all.end(), [=](const Accumulators& other) { return other.begin == begin; });
    if (entry == all.end()) {
        all.push_back({begin, bytes, 0, false, 0});
        entry = all.end() - 1;
    }
    if (!fenced_products_[thread])
        report(FENCE_PRODUCT, NOTHING, PRODUCT, thread, thread, {}, place);
    else if (entry->touched)
        report(FENCE_PRODUCT, LOAD, PRODUCT, thread, thread, {nullptr, 0, entry->counter}, place);
    *entry = {begin, bytes, number, false, 0};
}

void Watcher::touch_accumulators(const char* address, std::size_t bytes, Deed deed, const void* return_address)
{
    const unsigned thread = me();
    for (Accumulators& accumulators : accumulators_[thread]) {
        if (address + bytes <= accumulators.begin || address >= accumulators.begin + accumulators.bytes) continue;
        const GroupedProduct& product = products_[accumulators.product - 1];
        const Place place{nullptr, 0, counter(return_address)};
        if (product.group >= products_complete_[thread]) {
            const bool committed = product.group < products_committed_[thread];
            report(committed ? WAIT_PRODUCT : COMMIT_PRODUCT, PRODUCT, deed, thread, thread, product.place, place);
        }
        accumulators.touched = true;
        accumulators.counter = std::uint32_t(place.counter);
    }
}

}  // namespace host_cuda::hazards

#endif
