// Encoding of a SCAN: the client's query, the page that answers it, and the token that says where
// the next page begins. WIRE.md has each with a worked example. Little-endian.
//
//   ScanPageWriter writer(query);  // the server
//   while (... writer.add(record)) ...
//   const std::vector<std::byte> page = std::move(writer).finish(true);
//   RKV_ASSIGN_OR_RETURN(auto view, decode_scan_page(page, query.reverse));  // the client
//
// Invariants:
//  SCAN-1  Keys of a page are strictly ascending (descending in reverse): decode_scan_page()
//      refuses any other page.
//  SCAN-2  A token continues only the scan that produced it, with the same prefix, bounds and
//      direction: it carries a check over them and itself. It holds a key and no state of the
//      server, so it stays valid across restarts and the server keeps nothing for it.
//  SCAN-3  The keys after a token lie strictly beyond its key, so no key appears twice in a scan.
//
// Thread safety: values and pure functions; a ScanPageWriter has one owner.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/bytes.h"
#include "common/layout.h"
#include "rkv/limits.h"
#include "rkv/result.h"

namespace rkv {

struct ScanQuery {
  bool reverse = false;
  bool keys_only = false;
  std::uint32_t limit = 0;  // entries in the page; 0 = as many as fit
  Bytes prefix{};
  Bytes start{};  // keys at or above it
  Bytes end{};    // keys below it; empty = no bound
  Bytes token{};  // of the previous page; empty = the first page
};
inline constexpr std::size_t kScanQueryHeaderBytes = 16;
inline constexpr std::size_t kScanTokenHeaderBytes = 16;
inline constexpr std::size_t kMaxScanTokenBytes = kScanTokenHeaderBytes + kMaxKeyBytes;
inline constexpr std::size_t kMaxScanQueryBytes =
    kScanQueryHeaderBytes + 3 * kMaxKeyBytes + kMaxScanTokenBytes;

// `out` holds at least kMaxScanQueryBytes; prefix, bounds and token are within their limits.
std::size_t encode(const ScanQuery& query, MutableBytes out);
// Spans point into `bytes`. kInvalidArgument, kTooLarge: with a sentence. Refuses a token of
// another scan.
Result<ScanQuery> decode_scan_query(Bytes bytes);

// The keys still to scan: at or above `lower`, and below `upper` if there is one.
struct KeyRange {
  std::string lower{};
  std::optional<std::string> upper{};
  bool reverse = false;
  bool is_empty() const { return upper && *upper <= lower; }
  bool holds(std::string_view key) const { return key >= lower && (!upper || key < *upper); }
};
// REQUIRES: `query` was decoded, or has no token.
KeyRange range_of(const ScanQuery& query);

// Returns the token, as in a page, that continues `query` after `key`. Ignores the token in
// `query`.
std::string scan_token(const ScanQuery& query, std::string_view key);
// Returns the key in a token of this scan. kInvalidArgument: not a token of this scan.
Result<std::string_view> key_of_token(const ScanQuery& query, Bytes token);

// ------------------------------------------------------------------------------------- pages

inline constexpr std::size_t kScanPageHeaderBytes = 8;
inline constexpr std::size_t kScanEntryBytes = 24;
inline constexpr std::size_t kMaxScanPageBytes = kMaxInlineBytes;
// Longer values are left out of pages: the client GETs them.
inline constexpr std::size_t kMaxScanValueBytes = std::size_t{64} << 10;
static_assert(kScanPageHeaderBytes + kScanEntryBytes + kMaxKeyBytes + kMaxScanValueBytes +
                  kMaxScanTokenBytes <=
              kMaxScanPageBytes);

struct ScanItem {
  Version version{};
  std::uint64_t expiry_ms = 0;  // Unix milliseconds, 0 = never
  bool counter = false;
  bool left_out = false;           // the value is not in `value`
  std::uint32_t value_length = 0;  // length of the value, left out or not
  Bytes key{};
  Bytes value{};
};

// Fills a page. Allocates its bytes once.
class ScanPageWriter {
 public:
  // The page's token will continue `query` where the page ends.
  explicit ScanPageWriter(const ScanQuery& query);
  // Returns false if the record does not fit or the limit is reached; the page then ends before it.
  // REQUIRES: keys come in the order of the scan.
  bool add(const RecordFields& record);
  // Skips a record that is not to be shown: the next page begins after it.
  void pass(Bytes key) { last_key_.assign(as_text(key)); }
  // `more`: whether the range may contain keys after the last key added or passed.
  std::vector<std::byte> finish(bool more) &&;

 private:
  std::uint64_t scan_;  // identifies the scan, for the token
  std::uint32_t limit_;
  bool keys_only_;
  std::uint32_t count_ = 0;
  std::string last_key_;
  std::vector<std::byte> bytes_;
};

struct ScanPageView {
  std::vector<ScanItem> items;  // spans point into the page
  Bytes token{};                // empty: the scan is over
};
// kCorrupt: no ScanPageWriter produces these bytes.
Result<ScanPageView> decode_scan_page(Bytes page, bool reverse);

}  // namespace rkv
