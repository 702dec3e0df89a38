// The options that belong to single verbs: declares them to cxxopts and takes the parsed values.
#pragma once

#include <cxxopts.hpp>
#include <string>
#include <string_view>

#include "client/cli/options.h"

namespace rkv::cli {

void add_verb_options(cxxopts::Options& options, Verb verb);
// Sets the options; returns what is wrong with them, or an empty text.
std::string set_verb_options(Command& command, const cxxopts::ParseResult& result);

// Parses the text of --NAME; returns what is wrong with it, or an empty text.
std::string set_duration(std::string_view name, const std::string& text, std::uint64_t& ms);

}  // namespace rkv::cli
