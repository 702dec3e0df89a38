// The options that belong to single verbs: declares them to cxxopts and takes the parsed values.
// The row of an option, and sentences about wrong values, are those of global options too.
#pragma once

#include <chrono>
#include <cstdint>
#include <cxxopts.hpp>
#include <string>
#include <string_view>

#include "client/cli/options.h"

namespace rkv::cli {

// An option of the command line: a row of a table.
template <class Target>
struct Option {
  std::string_view name;
  char letter;            // 0 = none
  std::string_view hint;  // stands for the value in the help; empty: a switch, without a value
  std::string_view help;
  // Sets the value; returns what is wrong with the text, or an empty text.
  std::string (*apply)(Target& target, std::string_view name, const std::string& text);
  std::uint32_t verbs = 0;  // that have it: a bit each
  const char* bare = "";    // the value of the option without one; empty: it needs one

  // Returns true if the word is this option: "-d" or "--device".
  bool is(std::string_view word) const {
    if (word.starts_with("--")) return word.substr(2) == name;
    return letter != 0 && word.size() == 2 && word.front() == '-' && word.back() == letter;
  }
  bool takes_value() const { return !hint.empty(); }
  void add_to(cxxopts::OptionAdder& add, const std::string& text) const {
    const std::string start = letter != 0 ? std::string{letter, ','} : "";
    auto value = takes_value() ? cxxopts::value<std::string>() : cxxopts::value<bool>();
    if (*bare != '\0') value->implicit_value(bare);
    add(start + std::string(name), text, value, std::string(hint));
  }
};

void add_verb_options(cxxopts::Options& options, Verb verb);
// Sets the options; returns what is wrong with them, or an empty text.
std::string set_verb_options(Command& command, const cxxopts::ParseResult& result);
// Returns true if the word is an option of the verb whose value is the next word.
bool takes_value(Verb verb, std::string_view word);

// "--NAME needs WHAT, not 'TEXT'".
std::string needs(std::string_view name, std::string_view what, const std::string& text);
// Parses the text of --NAME; returns what is wrong with it, or an empty text.
std::string set_duration(std::chrono::milliseconds& target, std::string_view name,
                         const std::string& text);

}  // namespace rkv::cli
