#include "client/engine/page_reader.h"

#include <array>
#include <cstring>
#include <utility>

#include "client/engine/get_pipeline.h"
#include "client/engine/long_values.h"

namespace rkv::client {

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

Result<ScanPage> PageReader::read(const ScanOptions& options) {
  const Deadline deadline = engine_.connector.deadline(options.timeout);
  std::vector<std::size_t> left_out;
  RKV_ASSIGN_OR_RETURN(ScanPage page, read_without_long_values(options, deadline, left_out));
  if (!left_out.empty()) RKV_RETURN_IF_ERROR(fetch_values(page, left_out, deadline));
  return page;
}

// Copies the page, so that its receive buffer is free for the next answer.
Result<ScanPage> PageReader::read_without_long_values(const ScanOptions& options,
                                                      const Deadline& deadline,
                                                      std::vector<std::size_t>& left_out) {
  RKV_ASSIGN_OR_RETURN(ScanQuery query, query_of(options));
  std::array<std::byte, kMaxScanQueryBytes> bytes;
  Request request;
  request.opcode = Opcode::kScan;
  request.value = Bytes(bytes).first(encode(query, bytes));
  ScanPage page;
  std::size_t length = 0;
  {
    auto reply = engine_.requester.ask(request, deadline);
    if (!reply) {
      Error error = reply.error();
      if (error.code == Code::kInvalidArgument && !query.token.empty())
        error.text = "the token is not of this scan: begin without one";
      return std::unexpected(error);
    }
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

Status PageReader::fetch_values(ScanPage& page, std::span<const std::size_t> entries,
                                const Deadline& deadline) {
  LongValues values(page, entries);
  const auto take = [](void* target, std::size_t i, const Result<ValueView>& result) {
    static_cast<LongValues*>(target)->take(i, result);
  };
  KeysFeed feed(values.keys(), LongValues::kAtLeast, take, &values);
  GetPipeline(engine_, feed, deadline).run();
  return values.finish();
}

}  // namespace rkv::client
