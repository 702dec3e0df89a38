// Requests and responses: the work of both sides on the bytes of a message.
#include <benchmark/benchmark.h>

#include <array>
#include <cstddef>
#include <vector>

#include "common/wire.h"

namespace rkv::bench {
namespace {

constexpr std::string_view kKey = "user6284781860667377211";

struct Message {
  explicit Message(const benchmark::State& state)
      : value(static_cast<std::size_t>(state.range(0)), std::byte{'v'}) {}
  std::vector<std::byte> value;
  std::vector<std::byte> bytes = std::vector<std::byte>(kMaxMessageBytes);
  std::size_t length = 0;
};

Request get_request() {
  return {.opcode = Opcode::kGet, .sequence = 1, .begin_by_us = 5'000'000, .key = as_bytes(kKey)};
}
Request put_request(const Message& message) {
  Request put = get_request();
  put.opcode = Opcode::kPut;
  put.value = message.value;
  return put;
}
Response get_response(const Message& message) {
  return {
      .opcode = Opcode::kGet, .sequence = 1, .version = Version::of(1, 2), .value = message.value};
}

template <class What>
void encode_one(benchmark::State& state, const What& what, Message& message) {
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(message.length = encode(what, message.bytes));
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * message.length));
}

template <class Decode>
void decode_one(benchmark::State& state, const Message& message, Decode decode) {
  const Bytes bytes = Bytes(message.bytes).first(message.length);
  if (!decode(bytes)) state.SkipWithError("is not taken");
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(bytes.data());
    benchmark::DoNotOptimize(decode(bytes));
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * message.length));
}

auto decode_as_request(Bytes bytes) {
  std::uint64_t sequence = 0;
  return decode_request(bytes, &sequence);
}

void request_encode_get(benchmark::State& state) {
  Message message(state);
  encode_one(state, get_request(), message);
}
void request_decode_get(benchmark::State& state) {
  Message message(state);
  message.length = encode(get_request(), message.bytes);
  decode_one(state, message, decode_as_request);
}
void request_encode_put(benchmark::State& state) {
  Message message(state);
  encode_one(state, put_request(message), message);
}
void request_decode_put(benchmark::State& state) {
  Message message(state);
  message.length = encode(put_request(message), message.bytes);
  decode_one(state, message, decode_as_request);
}
void response_encode_get(benchmark::State& state) {
  Message message(state);
  encode_one(state, get_response(message), message);
}
void response_decode_get(benchmark::State& state) {
  Message message(state);
  message.length = encode(get_response(message), message.bytes);
  decode_one(state, message, decode_response);
}

void value_sizes(benchmark::internal::Benchmark* one) {
  one->ArgName("bytes")->Arg(100)->Arg(1 << 10)->Arg(16 << 10);
}
BENCHMARK(request_encode_get)->ArgName("bytes")->Arg(0);
BENCHMARK(request_decode_get)->ArgName("bytes")->Arg(0);
BENCHMARK(request_encode_put)->Apply(value_sizes);
BENCHMARK(request_decode_put)->Apply(value_sizes);
BENCHMARK(response_encode_get)->Apply(value_sizes);
BENCHMARK(response_decode_get)->Apply(value_sizes);

}  // namespace
}  // namespace rkv::bench
