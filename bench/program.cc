#include "bench/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cxxopts.hpp>
#include <exception>
#include <stdexcept>
#include <string_view>

#include "client/engine/option_table.h"
#include "common/random.h"

namespace rkv::bench {

namespace {
constexpr const client::ClientOption* kPolling = client::find_option("polling");
constexpr const client::ClientOption* kTransport = client::find_option("transport");
}  // namespace

void give_up(const char* what, const Error& error) {
  throw std::runtime_error(fmt::format("{}: {}", what, to_string(error)));
}

void give_up_connecting(const Error& error) {
  throw NoServer(fmt::format("connect: {}", to_string(error)));
}

ClientOptions Arguments::client_options() const {
  ClientOptions options{.server = text("server"), .name = "bench"};
  options.timeout = std::chrono::minutes(5);
  options.repeat_connect = false;
  for (const client::ClientOption* option : {kPolling, kTransport})
    client::set_option(options, *option, text(std::string(option->flag)));
  return options;
}

Client Arguments::connect(const ClientOptions& options) const {
  auto client = Client::connect(options);
  if (!client) give_up_connecting(client.error());
  return std::move(*client);
}

namespace {

const Program::Phase* phase_of(const Program& program, std::string_view name) {
  const auto found = std::ranges::find(program.phases, name, &Program::Phase::name);
  return found == program.phases.end() ? nullptr : &*found;
}

// Checks --phase, --transport and --poll.
const Program::Phase& check_choices(const Program& program, const Arguments& given) {
  for (const client::ClientOption* option : {kTransport, kPolling}) {
    const std::string flag(option->flag);
    const auto choices = client::words_of(*option);
    if (std::ranges::find(choices, given.text(flag)) != choices.end()) continue;
    throw std::invalid_argument(
        fmt::format("--{} must be one of {}", flag, fmt::join(choices, ", ")));
  }
  if (const Program::Phase* phase = phase_of(program, given.text("phase"))) return *phase;
  std::vector<std::string_view> names;
  for (const Program::Phase& phase : program.phases)
    names.emplace_back(phase.name);
  throw std::invalid_argument(fmt::format("--phase must be one of {}", fmt::join(names, ", ")));
}

}  // namespace

int run_program(int argc, char** argv, const Program& program) {
  Arguments given;
  const Program::Phase* phase = nullptr;
  try {
    std::vector<Program::Text> texts = {
        {"server", "HOST:PORT", "127.0.0.1:7471"},
        {"phase", "phase to run: see README.md and the source", ""},
        {"transport", "auto, verbs, shm or tcp", "auto"},
        {"poll", "how the client waits: adaptive, busy or event", "adaptive"}};
    texts.insert(texts.end(), program.texts.begin(), program.texts.end());
    cxxopts::Options options(program.name, program.purpose);
    for (const auto& [flag, help, value] : texts)
      options.add_options()(flag, help, cxxopts::value<std::string>()->default_value(value));
    for (const auto& [flag, help, value] : program.flags) {
      options.add_options()(flag, help,
                            cxxopts::value<std::uint64_t>()->default_value(std::to_string(value)));
    }
    const auto parsed = options.parse(argc, argv);
    if (!parsed.unmatched().empty())
      throw std::invalid_argument("every argument must be a flag with a value");
    for (const Program::Text& text : texts)
      given.texts_[text.flag] = parsed[text.flag].as<std::string>();
    for (const Program::Number& number : program.flags) {
      given.numbers_[number.flag] = parsed[number.flag].as<std::uint64_t>();
      if (given[number.flag] == 0)
        throw std::invalid_argument(fmt::format("--{} must be at least 1", number.flag));
    }
    phase = &check_choices(program, given);
  } catch (const std::exception& wrong) {
    std::fprintf(stderr, "%s: %s\n", program.name, wrong.what());
    return 2;
  }
  try {
    std::printf("%s\n", phase->run(given).dump().c_str());
    return 0;
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "%s: %s\n", program.name, problem.what());
    if (dynamic_cast<const Misuse*>(&problem) != nullptr) return 2;
    return dynamic_cast<const NoServer*>(&problem) != nullptr ? 3 : 4;
  }
}

std::string key_of(std::uint64_t number) {
  return fmt::format("user{:012}", number);
}

std::vector<std::string> keys_of(std::uint64_t count) {
  std::vector<std::string> keys;
  keys.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i)
    keys.push_back(key_of(i));
  return keys;
}

std::vector<std::string> shuffled_keys_of(std::uint64_t count) {
  std::vector<std::string> keys = keys_of(count);
  std::ranges::shuffle(keys, Random(1));
  return keys;
}

std::vector<std::string> values_of(std::size_t bytes) {
  std::vector<std::string> values(1024);
  Random random(1);
  for (std::string& value : values) {
    value.resize(bytes);
    const std::size_t half = (bytes + 1) / 2;
    for (std::size_t i = 0; i < bytes; ++i)
      value[i] = i < half ? static_cast<char>(random()) : value[i - half];
  }
  return values;
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

json server_stats(Client& client) {
  return json::parse(value_or_give_up("stats", client.server_stats()));
}

void put_all(Client& client, const std::vector<KeyValue>& items, const WriteOptions& options) {
  for (const auto& put : client.multi_put(items, options)) {
    if (!put) give_up("put", put.error());
  }
}

json percentiles(const Histogram& nanoseconds) {
  const auto us = [&](double percent) {
    return static_cast<double>(nanoseconds.percentile(percent)) / 1e3;
  };
  json curve = json::array();
  for (const double percent : {1.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.99})
    curve.push_back({percent, us(percent)});
  return {{"p50_us", us(50)}, {"p99_us", us(99)}, {"p999_us", us(99.9)}, {"curve_us", curve}};
}

}  // namespace rkv::bench
