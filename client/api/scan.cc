#include "rkv/scan.h"

#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "client/engine/long_values.h"
#include "common/scan.h"
#include "rkv/client.h"
#include "rkv/cluster.h"

namespace rkv {

namespace {

ScanEntry entry_of(const ScanItem& item) {
  return {.key = as_text(item.key),
          .value = as_text(item.value),
          .value_bytes = item.value_length,
          .version = item.version.bits,
          .expires_at_ms = item.expiry_ms,
          .is_counter = item.counter};
}

}  // namespace

namespace client {

Result<ScanQuery> query_of(const ScanOptions& options) {
  for (const std::string_view text : {options.prefix, options.start, options.end}) {
    if (text.size() > kMaxKeyBytes) {
      return fail(Code::kTooLarge, "a scan's prefix, start and end have 1024 bytes at most");
    }
  }
  if (options.token.size() > kMaxScanTokenBytes) {
    return fail(Code::kInvalidArgument, "the token is not a scan's continuation token");
  }
  return ScanQuery{.reverse = options.reverse,
                   .keys_only = options.keys_only,
                   .limit = options.limit,
                   .prefix = as_bytes(options.prefix),
                   .start = as_bytes(options.start),
                   .end = as_bytes(options.end),
                   .token = as_bytes(options.token)};
}

Result<ScanPage> Engine::scan(const ScanOptions& options) {
  const Deadline deadline = this->deadline(options.timeout);
  std::vector<std::size_t> left_out;
  RKV_ASSIGN_OR_RETURN(ScanPage page, scan_page(options, deadline, left_out));
  if (!left_out.empty()) RKV_RETURN_IF_ERROR(fetch_values(page, left_out, deadline));
  return page;
}

// Copies the page, so that its receive buffer is free for the next answer.
Result<ScanPage> Engine::scan_page(const ScanOptions& options, const Deadline& deadline,
                                   std::vector<std::size_t>& left_out) {
  RKV_ASSIGN_OR_RETURN(ScanQuery query, query_of(options));
  std::array<std::byte, kMaxScanQueryBytes> bytes;
  Request request;
  request.opcode = Opcode::kScan;
  request.value = Bytes(bytes).first(encode(query, bytes));
  ScanPage page;
  std::size_t length = 0;
  {
    auto reply = ask(request, deadline);
    if (!reply) return std::unexpected(reply.error());
    const Bytes value = reply->response().value;
    length = value.size();
    page.bytes_ = std::make_unique_for_overwrite<std::byte[]>(length);
    if (!value.empty()) std::memcpy(page.bytes_.get(), value.data(), length);
    page.version_ = reply->response().version.bits;
  }
  RKV_ASSIGN_OR_RETURN(const ScanPageView view,
                       decode_scan_page({page.bytes_.get(), length}, query.reverse));
  query.token = {};  // opaque here
  const KeyRange range = range_of(query);
  for (const ScanItem& item : view.items) {
    if (!range.holds(as_text(item.key))) {
      return fail(Code::kCorrupt, "the server's scan page has a key outside the range");
    }
    if (item.left_out && !query.keys_only) left_out.push_back(page.entries_.size());
    page.entries_.push_back(entry_of(item));
  }
  page.token_ = as_text(view.token);
  return page;
}

LongValues::LongValues(ScanPage& page, std::span<const std::size_t> entries)
    : page_(&page), entries_(entries), gone_(page.entries_.size()) {
  keys_.reserve(entries.size());
  for (const std::size_t index : entries)
    keys_.push_back(page.entries_[index].key);
}

// The GET's value is not older than the page. A key that no longer exists, or has become a
// one-sided counter, was removed during the scan.
void LongValues::take(std::size_t i, const Result<ValueView>& result) {
  ScanEntry& entry = page_->entries_[entries_[i]];
  if (result) {
    entry.value = page_->long_values_.emplace_back(result->value);
    entry.value_bytes = entry.value.size();
    entry.version = result->version;
    entry.expires_at_ms = result->expires_at_ms;
    entry.is_counter = result->is_counter;
  } else if (result.error().code == Code::kNotFound ||
             result.error().code == Code::kUnsupported) {  // a number in a cell
    gone_[entries_[i]] = true;
  } else if (failed_) {
    failed_ = std::unexpected(result.error());
  }
}

Status LongValues::finish() {
  if (!failed_) return failed_;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < page_->entries_.size(); ++i) {
    if (!gone_[i]) page_->entries_[kept++] = page_->entries_[i];
  }
  page_->entries_.resize(kept);
  return {};
}

Status Engine::fetch_values(ScanPage& page, std::span<const std::size_t> entries,
                            const Deadline& deadline) {
  LongValues values(page, entries);
  multi_get(
      values.keys(), LongValues::kAtLeast, deadline,
      [](void* target, std::size_t i, const Result<ValueView>& result) {
        static_cast<LongValues*>(target)->take(i, result);
      },
      &values);
  return values.finish();
}

}  // namespace client

Result<ScanPage> Client::scan(const ScanOptions& options) {
  return engine_->scan(options);
}

Scanner::Scanner(Client& client, const ScanOptions& options)
    : Scanner(
          &client,
          [](void* source, const ScanOptions& page) {
            return static_cast<Client*>(source)->scan(page);
          },
          options) {}

Scanner::Scanner(Cluster& cluster, const ScanOptions& options)
    : Scanner(
          &cluster,
          [](void* source, const ScanOptions& page) {
            return static_cast<Cluster*>(source)->scan(page);
          },
          options) {}

Scanner::Scanner(void* source, PageOf page_of, const ScanOptions& options)
    : source_(source),
      page_of_(page_of),
      prefix_(options.prefix),
      start_(options.start),
      end_(options.end),
      token_(options.token),
      options_(options),
      left_(options.limit != 0 ? options.limit : std::numeric_limits<std::uint64_t>::max()) {}

Status Scanner::next_page() {
  options_.prefix = prefix_;
  options_.start = start_;
  options_.end = end_;
  options_.token = token_;
  options_.limit =
      left_ <= std::numeric_limits<std::uint32_t>::max() ? static_cast<std::uint32_t>(left_) : 0;
  RKV_ASSIGN_OR_RETURN(ScanPage page, page_of_(source_, options_));
  if (any_shown_ && !page.entries().empty()) {
    const std::string_view first = page.entries().front().key;
    if (options_.reverse ? first >= last_key_ : first <= last_key_) {
      return fail(Code::kCorrupt, "the server's scan pages are not in order");
    }
  }
  page_ = std::move(page);
  token_ = page_.token();
  over_ = token_.empty();
  next_ = 0;
  return {};
}

Result<const ScanEntry*> Scanner::next() {
  if (left_ == 0) return nullptr;
  while (next_ == page_.entries().size()) {
    if (over_) return nullptr;
    if (!page_.entries().empty()) {
      last_key_ = page_.entries().back().key;
      any_shown_ = true;
    }
    RKV_RETURN_IF_ERROR(next_page());
  }
  --left_;
  return &page_.entries()[next_++];
}

const ScanEntry* Scanner::step() {
  const auto entry = next();
  status_ = entry ? Status{} : Status(std::unexpected(entry.error()));
  return entry ? *entry : nullptr;
}

}  // namespace rkv
