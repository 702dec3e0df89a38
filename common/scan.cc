#include "common/scan.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/check.h"
#include "common/hash.h"

namespace rkv {

namespace {

constexpr std::uint8_t kReverse = 1;
constexpr std::uint8_t kKeysOnly = 2;
constexpr std::uint8_t kTokenVersion = 1;
constexpr std::uint8_t kItemCounter = 1;
constexpr std::uint8_t kItemLeftOut = 2;
// Clients may make tokens themselves: a token gives no more access than a start key. The seed only
// keeps checks of other data from matching.
constexpr std::uint64_t kScanSeed = 0x6E6163'732D766BU;

std::byte* append(std::byte* at, Bytes bytes) {
  if (!bytes.empty()) std::memcpy(at, bytes.data(), bytes.size());
  return at + bytes.size();
}

// Each hash seeds the next, so that no bytes can move from one field to another.
std::uint64_t identity_of(const ScanQuery& query) {
  const std::uint64_t direction = query.reverse ? kScanSeed + 1 : kScanSeed;
  return xxh3(query.end, xxh3(query.start, xxh3(query.prefix, direction)));
}

// Token: version 1, reserved 7, check 8, key.
void make_token(std::uint64_t scan, std::string_view key, std::byte* out) {
  std::memset(out, 0, kScanTokenHeaderBytes);
  store_le(out, kTokenVersion);
  store_le(out + 8, xxh3(as_bytes(key), scan));
  append(out + kScanTokenHeaderBytes, as_bytes(key));
}

Bytes key_in_token(Bytes token) {
  return token.subspan(kScanTokenHeaderBytes);
}

Status check_token(const ScanQuery& query) {
  const Bytes token = query.token;
  if (token.empty()) return {};
  const bool has_key = token.size() > kScanTokenHeaderBytes && token.size() <= kMaxScanTokenBytes;
  if (has_key && load_le<std::uint64_t>(token.data()) == kTokenVersion &&
      load_le<std::uint64_t>(token.data() + 8) == xxh3(key_in_token(token), identity_of(query))) {
    return {};
  }
  return fail(Code::kInvalidArgument,
              "the continuation token is not one of this scan: begin without a token");
}

// Returns the least text above all texts that begin with `prefix`, or nullopt if there is none.
std::optional<std::string> end_of_prefix(std::string_view prefix) {
  std::string end(prefix);
  while (!end.empty() && end.back() == '\xFF')
    end.pop_back();
  if (end.empty()) return std::nullopt;
  end.back() = static_cast<char>(static_cast<unsigned char>(end.back()) + 1);
  return end;
}

}  // namespace

// Query: flags 1, reserved 1, lengths of prefix 2, start 2, end 2 and token 2, reserved 2, limit 4;
//        prefix; start; end; token.
std::size_t encode(const ScanQuery& query, MutableBytes out) {
  const std::size_t total = kScanQueryHeaderBytes + query.prefix.size() + query.start.size() +
                            query.end.size() + query.token.size();
  RKV_CHECK(query.prefix.size() <= kMaxKeyBytes && query.start.size() <= kMaxKeyBytes &&
                query.end.size() <= kMaxKeyBytes && query.token.size() <= kMaxScanTokenBytes &&
                out.size() >= total,
            "scan query larger than its buffer");
  std::memset(out.data(), 0, kScanQueryHeaderBytes);
  const unsigned flags = (query.reverse ? kReverse : 0U) | (query.keys_only ? kKeysOnly : 0U);
  store_le(out.data(), static_cast<std::uint8_t>(flags));
  store_le(out.data() + 2, static_cast<std::uint16_t>(query.prefix.size()));
  store_le(out.data() + 4, static_cast<std::uint16_t>(query.start.size()));
  store_le(out.data() + 6, static_cast<std::uint16_t>(query.end.size()));
  store_le(out.data() + 8, static_cast<std::uint16_t>(query.token.size()));
  store_le(out.data() + 12, query.limit);
  std::byte* at = out.data() + kScanQueryHeaderBytes;
  for (const Bytes part : {query.prefix, query.start, query.end, query.token})
    at = append(at, part);
  return total;
}

Result<ScanQuery> decode_scan_query(Bytes bytes) {
  if (bytes.size() < kScanQueryHeaderBytes) {
    return fail(Code::kInvalidArgument, "the scan is shorter than its header");
  }
  const auto flags = load_le<std::uint8_t>(bytes.data());
  if ((flags & ~(kReverse | kKeysOnly)) != 0 || bytes[1] != std::byte{0} ||
      load_le<std::uint16_t>(bytes.data() + 10) != 0) {
    return fail(Code::kInvalidArgument, "reserved bits of the scan are set");
  }
  ScanQuery query{.reverse = (flags & kReverse) != 0,
                  .keys_only = (flags & kKeysOnly) != 0,
                  .limit = load_le<std::uint32_t>(bytes.data() + 12)};
  Bytes rest = bytes.subspan(kScanQueryHeaderBytes);
  Bytes* const parts[] = {&query.prefix, &query.start, &query.end, &query.token};
  for (std::size_t i = 0; i < std::size(parts); ++i) {
    const std::size_t length = load_le<std::uint16_t>(bytes.data() + 2 + 2 * i);
    if (i < 3 && length > kMaxKeyBytes) {
      return fail(Code::kTooLarge, "a scan's prefix, start and end are limited to 1024 bytes");
    }
    if (length > rest.size()) {
      return fail(Code::kInvalidArgument, "the lengths in the scan do not add up to its size");
    }
    *parts[i] = rest.first(length);
    rest = rest.subspan(length);
  }
  if (!rest.empty()) {
    return fail(Code::kInvalidArgument, "the lengths in the scan do not add up to its size");
  }
  RKV_RETURN_IF_ERROR(check_token(query));
  return query;
}

KeyRange range_of(const ScanQuery& query) {
  KeyRange range{.lower = std::string(std::max(as_text(query.prefix), as_text(query.start))),
                 .upper = end_of_prefix(as_text(query.prefix)),
                 .reverse = query.reverse};
  const auto below = [&](std::string_view end) {
    if (!range.upper || end < *range.upper) range.upper = std::string(end);
  };
  if (!query.end.empty()) below(as_text(query.end));
  if (query.token.empty()) return range;
  const std::string_view key = as_text(key_in_token(query.token));
  if (query.reverse) {
    below(key);
  } else {
    range.lower = std::max(range.lower, std::string(key) + '\0');  // the least text above it
  }
  return range;
}

std::string scan_token(const ScanQuery& query, std::string_view key) {
  std::string token(kScanTokenHeaderBytes + key.size(), '\0');
  make_token(identity_of(query), key, reinterpret_cast<std::byte*>(token.data()));
  return token;
}

Result<std::string_view> key_of_token(const ScanQuery& query, Bytes token) {
  ScanQuery one = query;
  one.token = token;
  RKV_RETURN_IF_ERROR(check_token(one));
  if (token.empty()) return fail(Code::kInvalidArgument, "there is no continuation token");
  return as_text(key_in_token(token));
}

// ------------------------------------------------------------------------------------- pages

ScanPageWriter::ScanPageWriter(const ScanQuery& query)
    : scan_(identity_of(query)), limit_(query.limit), keys_only_(query.keys_only) {
  bytes_.reserve(kMaxScanPageBytes);
  bytes_.resize(kScanPageHeaderBytes);
  // If the page examines no key, the scan continues from the query's token.
  if (!query.token.empty()) last_key_.assign(as_text(key_in_token(query.token)));
}

// Entry: version 8, expiry 8, flags 1, reserved 1, key length 2, value length 4; key; value.
bool ScanPageWriter::add(const RecordFields& record) {
  const bool left_out = keys_only_ || record.value.size() > kMaxScanValueBytes;
  const std::size_t value = left_out ? 0 : record.value.size();
  const std::size_t length = kScanEntryBytes + record.key.size() + value;
  if ((limit_ != 0 && count_ == limit_) ||
      bytes_.size() + length + kMaxScanTokenBytes > kMaxScanPageBytes) {
    return false;
  }
  bytes_.resize(bytes_.size() + length);
  std::byte* const at = bytes_.data() + (bytes_.size() - length);
  const unsigned flags = (record.counter ? kItemCounter : 0U) | (left_out ? kItemLeftOut : 0U);
  store_le(at, record.version.bits);
  store_le(at + 8, record.expiry_ms);
  store_le(at + 16, static_cast<std::uint16_t>(flags));
  store_le(at + 18, static_cast<std::uint16_t>(record.key.size()));
  store_le(at + 20, static_cast<std::uint32_t>(record.value.size()));
  std::byte* const key = at + kScanEntryBytes;
  append(append(key, record.key), record.value.first(value));
  ++count_;
  pass(record.key);
  return true;
}

// Page: number of entries 4, token length 4; entries; token.
std::vector<std::byte> ScanPageWriter::finish(bool more) && {
  const std::size_t entries_end = bytes_.size();
  std::size_t token = 0;
  // Without an examined key there is nothing to continue from; a page always examines at least one.
  if (more && !last_key_.empty()) {
    token = kScanTokenHeaderBytes + last_key_.size();
    bytes_.resize(entries_end + token);
    make_token(scan_, last_key_, bytes_.data() + entries_end);
  }
  store_le(bytes_.data(), count_);
  store_le(bytes_.data() + 4, static_cast<std::uint32_t>(token));
  return std::move(bytes_);
}

namespace {

std::unexpected<Error> bad_page() {
  return fail(Code::kCorrupt, "the server's page of a scan is invalid");
}

// Takes one entry off `rest`.
std::optional<ScanItem> take_item(Bytes& rest) {
  if (rest.size() < kScanEntryBytes) return std::nullopt;
  const auto flags = load_le<std::uint16_t>(rest.data() + 16);
  const std::size_t key = load_le<std::uint16_t>(rest.data() + 18);
  ScanItem item{.version = {load_le<std::uint64_t>(rest.data())},
                .expiry_ms = load_le<std::uint64_t>(rest.data() + 8),
                .counter = (flags & kItemCounter) != 0,
                .left_out = (flags & kItemLeftOut) != 0,
                .value_length = load_le<std::uint32_t>(rest.data() + 20)};
  const std::size_t value = item.left_out ? 0 : item.value_length;
  const bool makes_sense = (flags & ~(kItemCounter | kItemLeftOut)) == 0 && key != 0 &&
                           key <= kMaxKeyBytes && item.value_length <= kMaxValueBytes &&
                           (!item.counter || item.value_length == kCounterBytes);
  rest = rest.subspan(kScanEntryBytes);
  if (!makes_sense || rest.size() < key + value) return std::nullopt;
  item.key = rest.first(key);
  item.value = rest.subspan(key, value);
  rest = rest.subspan(key + value);
  return item;
}

}  // namespace

Result<ScanPageView> decode_scan_page(Bytes page, bool reverse) {
  if (page.size() < kScanPageHeaderBytes) return bad_page();
  const auto count = load_le<std::uint32_t>(page.data());
  const auto token = load_le<std::uint32_t>(page.data() + 4);
  Bytes rest = page.subspan(kScanPageHeaderBytes);
  if (token > kMaxScanTokenBytes || token > rest.size()) return bad_page();
  ScanPageView view{.items = {}, .token = rest.last(token)};
  rest = rest.first(rest.size() - token);
  if (count > rest.size() / kScanEntryBytes) return bad_page();
  view.items.reserve(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto item = take_item(rest);
    if (!item) return bad_page();
    if (!view.items.empty()) {
      const std::string_view before = as_text(view.items.back().key);
      const std::string_view key = as_text(item->key);
      if (reverse ? key >= before : key <= before) return bad_page();  // (SCAN-1)
    }
    view.items.push_back(*item);
  }
  if (!rest.empty()) return bad_page();
  return view;
}

}  // namespace rkv
