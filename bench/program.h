// What the benchmark programs have in common: one phase, one JSON object on standard output.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>

#include "rkv/client.h"

namespace rkv::bench {

[[noreturn]] inline void give_up(const char* what, const Error& error) {
  throw std::runtime_error(fmt::format("{}: {}", what, to_string(error)));
}

// Connects or gives up. `transport`: auto, verbs or shm.
inline Client connect(ClientOptions options, std::string_view transport) {
  options.transport = transport == "verbs" ? Transport::kVerbs
                      : transport == "shm" ? Transport::kShm
                                           : Transport::kAuto;
  auto client = Client::connect(options);
  if (!client) give_up("connect", client.error());
  return std::move(*client);
}

// Exit status: 0 done, 2 wrong arguments (`parse` threw), 3 nobody to connect to, 4 anything else.
template <class Parse, class Run>
int run_program(const char* name, int argc, char** argv, Parse parse, Run run) {
  decltype(parse(argc, argv)) settings;
  try {
    settings = parse(argc, argv);
  } catch (const std::exception& wrong) {
    std::fprintf(stderr, "%s: %s\n", name, wrong.what());
    return 2;
  }
  try {
    std::printf("%s\n", run(settings).dump().c_str());
    return 0;
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "%s: %s\n", name, problem.what());
    return std::string_view(problem.what()).starts_with("connect") ? 3 : 4;
  }
}

}  // namespace rkv::bench
