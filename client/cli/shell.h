// The interactive shell: the same verbs as the command line, a prompt with history and completion
// on a terminal, a script otherwise.
//
// Words are separated by blanks. "..." knows \n \t \r \" \\ and \xNN; '...' takes everything as it
// is. A word that begins with # starts a comment.
#pragma once

#include <expected>
#include <string>
#include <string_view>
#include <vector>

#include "client/cli/commands.h"

namespace rkv::cli {

// The words of a line, or what is wrong with it.
std::expected<std::vector<std::string>, std::string> split_words(std::string_view line);

// Reads commands until the end of input, `exit` or `quit`. The exit code is that of the worst
// command of a script, kDone for a terminal.
ExitCode run_shell(Cluster& client, const Globals& globals);

}  // namespace rkv::cli
