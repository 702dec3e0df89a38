// The computations of a client that finds a key's slot and verifies what it has READ, and those of
// the server for that. Each stands beside its lower bound.
#include <benchmark/benchmark.h>

#include <cstring>
#include <string>
#include <vector>

#include "client/get/fingerprints.h"
#include "common/hash.h"
#include "common/layout.h"
#include "common/random.h"

namespace rkv::bench {
namespace {

constexpr std::uint64_t kEpoch = 0x1D0C'0FFE'E000'0001U;
constexpr Location kPlace = Location::of(1, 64);
constexpr std::string_view kKey = "user6284781860667377211";

std::vector<std::byte> random_bytes(std::size_t count) {
  Random random(count + 1);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes)
    byte = static_cast<std::byte>(random());
  return bytes;
}

void count_bytes(benchmark::State& state, std::size_t each) {
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * each));
}

// The comparisons.

void copy(benchmark::State& state) {
  const auto from = random_bytes(static_cast<std::size_t>(state.range(0)));
  std::vector<std::byte> to(from.size());
  for ([[maybe_unused]] auto _ : state) {
    std::memcpy(to.data(), from.data(), from.size());
    benchmark::DoNotOptimize(to.data());
    benchmark::ClobberMemory();
  }
  count_bytes(state, from.size());
}

void hash(benchmark::State& state) {
  const auto bytes = random_bytes(static_cast<std::size_t>(state.range(0)));
  for ([[maybe_unused]] auto _ : state)
    benchmark::DoNotOptimize(xxh3(bytes, kEpoch));
  count_bytes(state, bytes.size());
}

// Groups.

Group some_group(GroupPlace place) {
  Group group;
  Random random(7);
  for (std::uint64_t& slot : group.slots)
    slot = random() | 1U << 16;  // of the location: not empty
  group.header = GroupHeader{.change = 1, .depth = 3, .prefix = 5U << 24}.encode();
  group.checksum = group_checksum(group, kEpoch, place);
  return group;
}

void group_verify(benchmark::State& state) {
  const GroupPlace place{.extent = 2, .number = 77};
  const Group group = some_group(place);
  if (!verify_group(group, kEpoch, place)) state.SkipWithError("does not verify");
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(&group);
    benchmark::DoNotOptimize(verify_group(group, kEpoch, place));
  }
  count_bytes(state, sizeof group);
}

template <std::uint32_t (*find)(const Group&, std::uint16_t)>
void group_probe(benchmark::State& state) {
  const Group group = some_group({});
  std::uint64_t number = 0;
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(&group);
    const Slot wanted{group.slots[number++ % kSlotsPerGroup]};
    benchmark::DoNotOptimize(find(group, wanted.fingerprint()));
  }
}

// Records.

struct Record {
  explicit Record(std::size_t value_bytes)
      : value(random_bytes(value_bytes)),
        fields{.version = Version::of(1, 9), .key = as_bytes(kKey), .value = value},
        bytes(record_bytes(kKey.size(), value_bytes)) {
    encode_record(bytes, fields, RecordState::kLive, kEpoch, kPlace);
  }
  std::vector<std::byte> value;
  RecordFields fields;
  std::vector<std::byte> bytes;
};

void record_encode(benchmark::State& state) {
  Record record(static_cast<std::size_t>(state.range(0)));
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(
        encode_record(record.bytes, record.fields, RecordState::kLive, kEpoch, kPlace));
    benchmark::ClobberMemory();
  }
  count_bytes(state, record.bytes.size());
}

void record_verify(benchmark::State& state) {
  const Record record(static_cast<std::size_t>(state.range(0)));
  if (!decode_record(record.bytes, kEpoch, kPlace)) state.SkipWithError("does not verify");
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(record.bytes.data());
    benchmark::DoNotOptimize(decode_record(record.bytes, kEpoch, kPlace));
  }
  count_bytes(state, record.bytes.size());
}

void value_sizes(benchmark::internal::Benchmark* one) {
  one->ArgName("bytes")->Arg(100)->Arg(1 << 10)->Arg(16 << 10);
}
BENCHMARK(copy)->Apply(value_sizes);
// The hashed sizes: a key, a group, and records with values of these sizes.
void hashed_sizes(benchmark::internal::Benchmark* one) {
  one->ArgName("bytes")->Arg(kKey.size())->Arg(kGroupBytes - sizeof(Group::checksum));
  for (const std::size_t value_bytes : {100, 1 << 10, 16 << 10})
    one->Arg(static_cast<std::int64_t>(record_bytes(kKey.size(), value_bytes) - 8));
}
BENCHMARK(hash)->Apply(hashed_sizes);
BENCHMARK(group_verify);
BENCHMARK_TEMPLATE(group_probe, client::slots_with)->Name("group_probe");
BENCHMARK_TEMPLATE(group_probe, client::slots_with_plain)->Name("group_probe_slot_by_slot");
BENCHMARK(record_encode)->Apply(value_sizes);
BENCHMARK(record_verify)->Apply(value_sizes);

}  // namespace
}  // namespace rkv::bench
