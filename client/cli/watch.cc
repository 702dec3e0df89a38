// stats --watch: a line for each server and interval, with what it does in a second.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/cli/commands.h"
#include "client/cli/interrupt.h"
#include "client/cli/output.h"

namespace rkv::cli {

namespace {

// A figure of a line, made of the numbers of the server's statistics.
struct Column {
  enum class Kind : std::uint8_t { kRate, kCount, kBytes };
  const char* title;
  const char* name;    // in JSON
  const char* number;  // of the statistics
  Kind kind;
};
constexpr std::array kColumns = {
    Column{"puts/s", "puts_per_s", "puts", Column::Kind::kRate},
    Column{"removes/s", "removes_per_s", "removes", Column::Kind::kRate},
    Column{"counters/s", "counter_operations_per_s", "counter_operations", Column::Kind::kRate},
    Column{"GETs served/s", "two_sided_gets_per_s", "two_sided_gets", Column::Kind::kRate},
    Column{"READs seen/s", "reported_reads_per_s", "reads_reported_by_clients",
           Column::Kind::kRate},
    Column{"clients", "connections", "connections", Column::Kind::kCount},
    Column{"records", "records", "records", Column::Kind::kCount},
    Column{"on disk", "records_on_disk", "records_on_disk", Column::Kind::kCount},
    Column{"memory MiB", "memory_bytes", "memory_bytes", Column::Kind::kBytes},
    Column{"queue MiB", "queue_bytes", "queue_bytes", Column::Kind::kBytes},
};
constexpr int kLinesPerHead = 20;

std::uint64_t number_of(const Json& stats, const char* name) {
  const auto found = stats.find(name);
  return found != stats.end() && found->is_number_unsigned() ? found->get<std::uint64_t>() : 0;
}

std::uint64_t rise_of(const Json& before, const Json& now, const char* name) {
  const std::uint64_t old = number_of(before, name);
  return std::max(number_of(now, name), old) - old;
}

// Returns the changes between two answers of one start of a server. Rates are by the server's
// clock.
Json figures_between(const Json& before, const Json& now) {
  const double seconds =
      static_cast<double>(std::max<std::uint64_t>(rise_of(before, now, "uptime_ms"), 1)) / 1000;
  Json figures;
  for (const Column& column : kColumns) {
    if (column.kind == Column::Kind::kRate) {
      figures[column.name] = static_cast<double>(rise_of(before, now, column.number)) / seconds;
    } else {
      figures[column.name] = number_of(now, column.number);
    }
  }
  const auto cpu_us = static_cast<double>(rise_of(before, now, "user_cpu_us") +
                                          rise_of(before, now, "system_cpu_us"));
  figures["processors"] = cpu_us / 1e6 / seconds;
  return figures;
}

std::string head() {
  std::string line;
  for (const Column& column : kColumns)
    line += fmt::format("{:>14}", column.title);
  return line + fmt::format("{:>14}", "processors");
}

std::string line_of(const Json& figures) {
  std::string line;
  for (const Column& column : kColumns) {
    const double number = figures[column.name].get<double>();
    const bool is_bytes = column.kind == Column::Kind::kBytes;
    line += fmt::format("{:>14}", is_bytes ? fmt::format("{:.1f}", number / (1 << 20))
                                           : fmt::format("{:.0f}", number));
  }
  return line + fmt::format("{:>14.2f}", figures["processors"].get<double>());
}

// The last answer of a server.
class Watched {
 public:
  // Empty: this is the first answer since the server's start, or since it was not reached.
  std::optional<Json> take(const Result<std::string>& text) {
    std::optional<Json> now;
    if (text) now = Json::parse(*text, nullptr, false);
    if (now && !now->is_object()) now.reset();
    std::optional<Json> figures;
    has_started_again_ = now && epoch_ && *epoch_ != (*now)["epoch"];
    if (now && last_ && !has_started_again_) figures = figures_between(*last_, *now);
    if (now) epoch_ = (*now)["epoch"];
    last_ = std::move(now);
    return figures;
  }
  // Between the last two answers.
  bool has_started_again() const { return has_started_again_; }

 private:
  std::optional<Json> last_;   // unless it was not reached since
  std::optional<Json> epoch_;  // of the last answer
  bool has_started_again_ = false;
};

// Says that a server has not answered, while the thread that asked it waits.
class Reminder {
 public:
  Reminder(std::string address, std::chrono::milliseconds after)
      : thread_([this, address = std::move(address), after](const std::stop_token& over) {
          std::unique_lock lock(mutex_);
          if (over_.wait_for(lock, over, after, [&] { return over.stop_requested(); })) return;
          complain(
              fmt::format("{}: the server has not answered for {} ms", address, after.count()));
        }) {}

 private:
  std::mutex mutex_;
  std::condition_variable_any over_;
  std::jthread thread_;  // ends first
};

class Watch {
 public:
  // `patience`: with all servers, at a look. `remind_after`: of one that is the only one.
  Watch(Cluster& client, bool as_json, std::chrono::milliseconds patience,
        std::chrono::milliseconds remind_after)
      : client_(client),
        as_json_(as_json),
        patience_(patience),
        remind_after_(remind_after),
        servers_(client.map().servers().size()) {}

  // Asks each server, and prints a line for each that was asked before.
  ExitCode look() {
    ExitCode worst = kDone;
    const auto texts = ask();
    is_refused_ = std::ranges::all_of(texts, [](const Result<std::string>& text) {
      return !text && text.error().code == Code::kPermission;
    });
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const std::string& address = client_.map().servers()[i].address;
      if (!texts[i]) {
        complain(fmt::format("{}: {}", address, to_string(texts[i].error())));
        worst = std::max(worst, exit_code_of(texts[i].error()));
      }
      const auto figures = servers_[i].take(texts[i]);
      if (servers_[i].has_started_again()) complain(address + ": the server has started again");
      if (figures) print(address, *figures);
    }
    std::fflush(stdout);
    return worst;
  }
  // Whether each server has refused: the user may not ask.
  bool is_refused() const { return is_refused_; }

 private:
  std::vector<Result<std::string>> ask() {
    std::optional<Reminder> reminder;
    if (servers_.size() == 1 && remind_after_ < patience_)
      reminder.emplace(client_.map().servers().front().address, remind_after_);
    return client_.server_stats(patience_);
  }
  void print(const std::string& address, Json figures) {
    if (as_json_) {
      figures["server"] = address;
      return print_json(figures);
    }
    const bool several = servers_.size() > 1;
    if (lines_++ % kLinesPerHead == 0) print_raw(several ? head() + "  server\n" : head() + "\n");
    print_raw(line_of(figures) + (several ? "  " + address + "\n" : "\n"));
  }

  Cluster& client_;
  const bool as_json_;
  const std::chrono::milliseconds patience_;
  const std::chrono::milliseconds remind_after_;
  bool is_refused_ = false;
  std::vector<Watched> servers_;
  int lines_ = 0;
};

}  // namespace

ExitCode run_watch(Cluster& client, const Job& job, bool interactive) {
  std::optional<Interrupt> interrupt;
  if (interactive) interrupt.emplace();
  // A server that is away must not hold up the lines of the others.
  std::chrono::milliseconds patience = job.command.globals.client.timeout;
  if (client.map().servers().size() > 1)
    patience = std::min(patience, std::max(job.command.interval, std::chrono::milliseconds(1000)));
  constexpr std::chrono::milliseconds kLeast(100);  // a shorter wait says nothing
  Watch watch(client, job.command.globals.json, patience, std::max(job.command.interval, kLeast));
  ExitCode worst = watch.look();
  if (watch.is_refused()) return worst;
  auto next = std::chrono::steady_clock::now();
  for (std::uint64_t i = 0; job.command.count == 0 || i < job.command.count; ++i) {
    next = std::max(next + job.command.interval, std::chrono::steady_clock::now());
    if (!interrupt) {
      std::this_thread::sleep_until(next);
    } else if (interrupt->wait_until(next)) {
      print_raw("\n");  // the terminal has shown ^C
      break;
    }
    worst = std::max(worst, watch.look());
    if (std::ferror(stdout) != 0 || watch.is_refused()) break;
  }
  return worst;
}

}  // namespace rkv::cli
