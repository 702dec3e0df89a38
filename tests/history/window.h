// The smallest part of a key's history that is found to be impossible by itself, and how it is
// told.
//
// Thread safety: none.
#pragma once

#include <string>
#include <vector>

#include "tests/history/history.h"
#include "tests/history/search.h"

namespace rkv::history {

// REQUIRES: search() found `steps` impossible from an absent key, with `result`. Indexes of the
// operations (as of Step) that are impossible whatever was before them.
std::vector<std::size_t> smallest_window(const std::vector<Step>& steps, const SearchResult& result,
                                         const SearchLimits& limits);

// The operations one a line with their times, `offending` marked.
std::string tell(const History& window, const Operation& offending, std::size_t most_lines);

}  // namespace rkv::history
