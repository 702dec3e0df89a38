// Finds and prints the smallest part of a key's history that is impossible by itself.
//
// Thread safety: none.
#pragma once

#include <string>
#include <vector>

#include "tests/history/history.h"
#include "tests/history/search.h"

namespace rkv::history {

// Returns the indexes (as in Step) of operations that are impossible whatever happened before them.
// REQUIRES: search() found `steps` impossible from an absent key, with `result`.
std::vector<std::size_t> smallest_window(const std::vector<Step>& steps, const SearchResult& result,
                                         const SearchLimits& limits);

// The operations with their times, one per line, with `offending` marked.
std::string tell(const History& window, const Operation& offending, std::size_t most_lines);

}  // namespace rkv::history
