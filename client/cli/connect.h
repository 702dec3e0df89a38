// How kvclient and kvbench reach their server.
#pragma once

#include "client/cli/exit_code.h"
#include "rkv/client.h"

namespace rkv::cli {

// As Client::connect, but a server that is loading, or has no place just now, is waited for, up to
// options.timeout. Blocks up to twice that. Whatever the reason, a failure is kNoServer, and its
// sentence has what the server says.
OrFailure<Client> connect(const ClientOptions& options);

}  // namespace rkv::cli
