// The options that belong to one verb each: declared to cxxopts, and taken from what it found.
#pragma once

#include <cxxopts.hpp>
#include <string>
#include <string_view>

#include "client/cli/options.h"

namespace rkv::cli {

void add_verb_options(cxxopts::Options& options, Verb verb);
// What is wrong with them, or nothing.
std::string set_verb_options(Command& command, const cxxopts::ParseResult& result);

// What is wrong with the text of --NAME, or nothing.
std::string set_duration(std::string_view name, const std::string& text, std::uint64_t& ms);

}  // namespace rkv::cli
