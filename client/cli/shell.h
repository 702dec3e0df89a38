// The interactive shell: the same verbs as the command line. On a terminal it has a prompt with
// history and completion; other input is a script.
//
// Words are separated by blanks. "..." recognizes \n \t \r \" \\ and \xNN; '...' takes everything
// as it is. A word that begins with # starts a comment.
#pragma once

#include <expected>
#include <string>
#include <string_view>
#include <vector>

#include "client/cli/commands.h"

namespace rkv::cli {

// Returns the words of a line, or what is wrong with the line.
std::expected<std::vector<std::string>, std::string> split_words(std::string_view line);

// Reads commands until the end of input, `exit` or `quit`. Returns the highest exit code of a
// script's commands, or kDone for a terminal.
ExitCode run_shell(Cluster& client, const Globals& globals);

}  // namespace rkv::cli
