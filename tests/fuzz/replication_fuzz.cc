// Messages between replicas (server/group/rules/encoding.h): nothing is accepted but what an
// encoder makes (REPMSG-1). The head is put right where the input says so.
#include <variant>
#include <vector>

#include "common/hash.h"
#include "server/group/rules/encoding.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rkv;
  fuzz::Input input(data, size);
  const auto seals = input.number<std::uint8_t>();
  std::vector<std::byte> copy(input.rest().begin(), input.rest().end());
  if (seals % 8 != 0 && copy.size() >= server::kReplicationHeadBytes) {
    store_le(copy.data(), std::uint32_t{0x4756'4B52U});
    store_le(copy.data() + 4, server::kReplicationVersion);
    store_le(copy.data() + 8, static_cast<std::uint32_t>(copy.size()));
    store_le(copy.data() + 12, std::uint32_t{0});
    store_le(copy.data() + 16, std::uint64_t{0});
    store_le(copy.data() + 16, xxh3(copy, 0));
  }
  const fuzz::Exact exact(copy);
  const auto decoded = server::decode_replication(exact.bytes());
  if (!decoded) return 0;
  const auto again =
      std::visit([](const auto& message) { return server::encode(message); }, *decoded);
  RKV_CHECK(fuzz::same(again, exact.bytes()), "a message that no encoder makes");
  return 0;
}
