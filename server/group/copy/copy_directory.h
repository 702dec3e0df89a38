// The directories through which a copy of a database enters a data directory, and their recovery
// after a crash.
//
//   copying   is being received; never used
//   copied    is whole, verified and synced; used by install_copy() only
//   replaced  the database that was here before
//
// install_copy() renames db to replaced and copied to db, and removes replaced. All names are in
// one directory, so after a crash the first of these changes, in order, have happened.
//
// Invariant:
//  COPY-1  After a crash at any point recover_copy() leaves in db either the old database or the
//      new one, whole, and nothing else of a copy. It is the new one if db was renamed before.
//
// Thread safety: free functions, one at a time for a data directory. They block on the disk.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "rkv/result.h"

namespace rkv::server {

// Names of these directories, relative to the data directory.
inline constexpr const char* kCopying = "/copying";
inline constexpr const char* kCopied = "/copied";
inline constexpr const char* kReplaced = "/replaced";
inline constexpr const char* kSendingCopy = "/sending";  // the primary's checkpoint

// Whether RocksDB gives a file of a database such a name. Such a name is not a path.
bool is_database_file(std::string_view name);

// On failure `*problem` is a sentence that names the directory and says what to do.

// Call it at each start, before the database is opened. kConflict: no crash leaves such
// directories; the databases in them are unchanged.
Status recover_copy(const std::string& directory, std::string* problem);
// Replaces the database by the copy that was received. REQUIRES: the database is closed. On failure
// recover_copy() must run before the database is opened. `go_on` is for tests: called before each
// step; false simulates the end of the process.
Status install_copy(const std::string& directory, std::string* problem,
                    const std::function<bool()>& go_on = {});
// Removes a copy that was received, in whole or in part.
Status remove_copy(const std::string& directory, std::string* problem);

}  // namespace rkv::server
