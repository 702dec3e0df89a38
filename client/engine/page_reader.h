// Reads pages of a scan from one server.
//
// Thread safety: as the engine. No other operation may use the engine meanwhile.
#pragma once

#include <span>
#include <vector>

#include "client/engine/engine.h"
#include "common/scan.h"
#include "rkv/scan.h"

namespace rkv::client {

class PageReader {
 public:
  explicit PageReader(Engine& engine) : engine_(engine) {}

  // Client::scan(): a request, and a GET for each long value. Blocks until the deadline at most.
  Result<ScanPage> read(const ScanOptions& options);
  // Like read(), without the values that are too long for a page: `left_out` gets their indices.
  Result<ScanPage> read_without_long_values(const ScanOptions& options, const Deadline& deadline,
                                            std::vector<std::size_t>& left_out);

 private:
  Status fetch_values(ScanPage& page, std::span<const std::size_t> entries,
                      const Deadline& deadline);

  Engine& engine_;
};

// Converts and checks the options of a scan. The result's spans point to the same bytes as the
// options'.
Result<ScanQuery> query_of(const ScanOptions& options);

}  // namespace rkv::client
