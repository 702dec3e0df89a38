// Judges the history of a recorded run from its exported file, which is kept if it is rejected:
// below RKV_HISTORY_DIR, else beside the results of the test run, which leave the VM too, else in
// the build directory.
//
// Thread safety: functions.
#pragma once

#include <string>

#include "tests/history/checker.h"
#include "tests/history/history.h"

namespace rkv::history {

// Returns the report of a violation with the file's path; empty: linearizable. `imported`: what was
// judged.
std::string judge(const History& history, const CheckLimits& limits, const std::string& name,
                  History* imported = nullptr);

}  // namespace rkv::history
