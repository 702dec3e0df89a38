// Shared by the verbs that move many records.
#pragma once

#include "client/cli/exit_code.h"
#include "client/cli/output.h"
#include "client/cli/records.h"
#include "common/clock.h"
#include "rkv/cluster.h"
#include "rkv/scan.h"

namespace rkv::cli {

// One call of the client moves at most this much. So its deadline covers a bounded amount of work
// and not a whole file.
inline constexpr std::size_t kBatchRecords = 256;
inline constexpr std::size_t kBatchBytes = std::size_t{1} << 20;

// Converts an entry to a record of a file.
Record record_of(const ScanEntry& entry);
Record record_of(std::string_view key, const Value& value);

// Returns the end of the batch that starts at `first`.
std::size_t batch_end(const std::vector<Record>& records, std::size_t first);
double seconds_between(Nanos from, Nanos to);

struct Verification {
  Json facts;
  ExitCode exit_code = kDone;
};
// Reads every record back and compares; complains when one is missing or differs.
Verification read_back(Cluster& client, const RecordSet& set, bool sequential, bool progress);
void print_facts(const Json& result);

}  // namespace rkv::cli
