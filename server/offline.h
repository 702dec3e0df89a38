// Runs of the program that serve nobody: --verify and --restore.
//
// Thread safety: none needed. Both block on the disk for as long as reading everything takes.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "common/clock.h"
#include "server/options.h"
#include "server/server.h"

namespace rkv::server {

// Long work says on standard error how far it is (progress.h).

// A line for standard output.
using Print = std::function<void(const std::string& line)>;

// Reads all of --data-dir, changes nothing, prints what it has found. kExitData: it is in use, is
// not there, or has a problem.
std::optional<Failure> verify_data(const Options& options, const Print& print, const Clock& clock);

// Makes --data-dir from the backup --restore. It must not exist, or be empty; the backup must be
// sound, and is left as it is. Killed at any moment it leaves a directory that no server starts on,
// or the whole one. kExitData; then --data-dir is as it was.
std::optional<Failure> restore_data(const Options& options, const Print& print, const Clock& clock);

// Below a data directory while it is being restored: what is there is no data to start on.
inline constexpr const char* kRestoring = "/restoring";

}  // namespace rkv::server
