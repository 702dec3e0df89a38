// The keys or items of one call, sorted by server. Kept from call to call, to save allocations.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "client/engine/get_pipeline.h"
#include "client/engine/write_pipeline.h"
#include "rkv/shard_map.h"

namespace rkv::client {

struct ShardedBatch {
  // Passes a flow's results to the caller's visitor. The flow numbers items by their place among
  // the server's items; `indices` converts that to the caller's order.
  template <class Result>
  struct Target {
    using Visitor = void (*)(void* target, std::size_t index, const Result& result);
    const std::uint32_t* indices = nullptr;  // caller's index of each of the server's items
    Visitor visit = nullptr;
    void* target = nullptr;
    static void take(void* self, std::size_t place, const Result& result) {
      const auto& to = *static_cast<Target*>(self);
      to.visit(to.target, to.indices[place], result);
    }
  };

  std::vector<std::uint8_t> servers;   // server of each item, in the caller's order
  std::vector<std::uint32_t> ends;     // end of each server's part of the vectors below
  std::vector<std::uint32_t> indices;  // caller's index of each item, by server
  std::vector<std::string_view> keys;  // keys, by server
  std::vector<KeyValue> items;
  std::vector<KeysFeed> key_feeds;  // reserved: the pipelines refer to them
  std::vector<ItemsFeed> item_feeds;
  // The pipelines of a call, and pointers to them. end_flows() ends them with the call.
  std::vector<GetPipeline> gets;
  std::vector<WritePipeline> puts;
  std::vector<Pipeline*> flows;
  std::vector<Target<rkv::Result<ValueView>>> get_targets;
  std::vector<Target<rkv::Result<std::uint64_t>>> put_targets;

  // Sorts `count` items. `key_of(i)` is the key of item i; `place(from, to)` stores an item.
  template <class KeyOf, class Place>
  void sort(const ShardMap& map, std::size_t count, KeyOf key_of, Place place) {
    const std::size_t all = map.servers().size();
    ends.assign(all, 0);
    servers.resize(count);
    indices.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      servers[i] = static_cast<std::uint8_t>(map.shard_of(key_of(i)));
      ++ends[servers[i]];
    }
    std::uint32_t begin = 0;
    for (std::uint32_t& end : ends)  // the begin of each part, for now
      begin += std::exchange(end, begin);
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t to = ends[servers[i]]++;
      indices[to] = static_cast<std::uint32_t>(i);
      place(i, to);
    }
  }
  // Returns the buffers of the engines (FLOW-3).
  void end_flows() {
    flows.clear();
    gets.clear();
    puts.clear();
  }
  std::uint32_t begin_of(std::size_t server) const { return server == 0 ? 0 : ends[server - 1]; }
  std::uint32_t size_of(std::size_t server) const { return ends[server] - begin_of(server); }
};

}  // namespace rkv::client
