// Runs of the program that serve no clients: --verify and --restore.
//
// Thread safety: none needed. Both block on the disk for as long as it takes to read everything.
// Both show their progress on standard error (background/progress.h).
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "common/clock.h"
#include "server/program/failure.h"
#include "server/program/options.h"

namespace rkv::server {

// Prints a line on standard output.
using Print = std::function<void(const std::string& line)>;

// Reads all of --data-dir, changes nothing, and prints what it found. kExitData: the directory is
// in use, does not exist, or has a problem.
std::optional<Failure> verify_data(const Options& options, const Print& print, const Clock& clock);

// Creates --data-dir from the backup --restore. The directory must not exist, or must be empty. The
// backup must be sound, and stays unchanged. If the process is killed, the directory is either
// complete or one that no server starts on. kExitData: --data-dir is as it was before.
std::optional<Failure> restore_data(const Options& options, const Print& print, const Clock& clock);

}  // namespace rkv::server
