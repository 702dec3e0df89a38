// Tokens of scans (common/scan.h): a token is that of one scan and one key (SCAN-2), and what
// follows it lies strictly behind its key (SCAN-3).
#include <string>
#include <vector>

#include "common/scan.h"
#include "tests/fuzz/fuzz.h"

namespace {

using rkv::as_bytes;
using rkv::Bytes;
using rkv::ScanQuery;

// Short texts of few letters, so that one begins another.
Bytes text(rkv::fuzz::Input& input) {
  return input.take(input.number<std::uint8_t>() % 12);
}

void expect_continues(const ScanQuery& query, std::string_view key) {
  const std::string token = rkv::scan_token(query, key);
  const auto found = rkv::key_of_token(query, as_bytes(token));
  RKV_CHECK(found && *found == key, "a token of this scan is not taken for one");
  ScanQuery next = query;
  next.token = as_bytes(token);
  std::vector<std::byte> bytes(rkv::kMaxScanQueryBytes);
  bytes.resize(encode(next, bytes));
  const auto decoded = rkv::decode_scan_query(bytes);
  if (!decoded) return;  // bounds that leave nothing
  const rkv::KeyRange range = rkv::range_of(*decoded);
  RKV_CHECK(!range.holds(key), "a key comes twice (SCAN-3)");
  RKV_CHECK(query.reverse ? (range.is_empty() || !range.upper || *range.upper <= key)
                          : (range.is_empty() || range.lower > key),
            "the next page begins before the token (SCAN-3)");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rkv;
  fuzz::Input input(data, size);
  const auto flags = input.number<std::uint8_t>();
  ScanQuery query{.reverse = (flags & 1U) != 0};
  query.prefix = text(input);
  query.start = text(input);
  query.end = text(input);
  if ((flags & 2U) != 0) {
    const Bytes key = text(input);
    if (!key.empty()) expect_continues(query, as_text(key));
    // The same token, of another scan.
    ScanQuery other = query;
    (flags & 4U) != 0 ? other.prefix = text(input) : other.end = text(input);
    const bool differs =
        !fuzz::same(other.prefix, query.prefix) || !fuzz::same(other.end, query.end);
    const std::string token = scan_token(query, as_text(key));
    RKV_CHECK(!differs || !key_of_token(other, as_bytes(token)),
              "a token of another scan (SCAN-2)");
    return 0;
  }
  const fuzz::Exact exact(input.rest());
  const auto key = key_of_token(query, exact.bytes());
  if (!key) return 0;
  RKV_CHECK(fuzz::same(as_bytes(scan_token(query, *key)), exact.bytes()), "a token of two forms");
  return 0;
}
