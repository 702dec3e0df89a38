// HdrHistogram against sorted samples, and histogram logs against an independent reader.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <sstream>
#include <thread>

#include "bench/kvbench/hdr_histogram.h"
#include "bench/kvbench/hdr_log.h"
#include "bench/kvbench/measurements.h"
#include "tests/system/process.h"
#include "tests/system/world.h"

namespace rkv::kvbench {
namespace {

TEST(HdrBuckets, TileAllValues) {
  for (std::size_t i = 0; i + 1 < HdrBuckets::kCount; ++i) {
    ASSERT_EQ(HdrBuckets::index(HdrBuckets::lowest(i)),
              std::min(i, HdrBuckets::index(HdrBuckets::kMost)));
    ASSERT_EQ(HdrBuckets::highest(i) + 1, HdrBuckets::lowest(i + 1));
    if (HdrBuckets::highest(i) > HdrBuckets::kMost) break;
    ASSERT_EQ(HdrBuckets::index(HdrBuckets::highest(i)), i);
  }
  EXPECT_LT(HdrBuckets::index(~std::uint64_t{0}), HdrBuckets::kCount);
}

TEST(HdrHistogram, EmptyAnswersZero) {
  const HdrHistogram empty;
  EXPECT_EQ(empty.percentile(99), 0U);
  EXPECT_EQ(empty.max(), 0U);
  EXPECT_EQ(empty.min(), 0U);
  EXPECT_EQ(empty.mean(), 0.0);
}

TEST(HdrHistogram, IsExactBelow2048) {
  HdrHistogram histogram;
  for (std::uint64_t i = 1; i <= 2000; ++i)
    histogram.record(i);
  EXPECT_EQ(histogram.percentile(50), 1000U);
  EXPECT_EQ(histogram.percentile(99), 1980U);
  EXPECT_EQ(histogram.percentile(99.9), 1998U);
  EXPECT_EQ(histogram.percentile(100), 2000U);
  EXPECT_EQ(histogram.percentile(0), 1U);
  EXPECT_EQ(histogram.mean(), 1000.5);
}

RC_GTEST_PROP(HdrHistogram, PercentilesHaveThreeDigitsOfTheSortedSample, ()) {
  auto sample = *rc::gen::nonEmpty(rc::gen::container<std::vector<std::uint64_t>>(
      rc::gen::inRange<std::uint64_t>(0, 1ULL << 41)));
  HdrHistogram histogram;
  for (const std::uint64_t value : sample)
    histogram.record(value);
  std::ranges::sort(sample);
  for (const double percent : {0.0, 1.0, 50.0, 90.0, 99.0, 100.0}) {
    const double rank = std::ceil(percent / 100 * static_cast<double>(sample.size()));
    const std::uint64_t exact = sample[static_cast<std::size_t>(std::max(rank, 1.0)) - 1];
    const std::uint64_t shown = histogram.percentile(percent);
    RC_ASSERT(shown >= exact);
    RC_ASSERT(static_cast<double>(shown - exact) <= static_cast<double>(exact) / 1000);
  }
  RC_ASSERT(histogram.min() <= sample.front());
  const double mean =
      std::accumulate(sample.begin(), sample.end(), 0.0) / static_cast<double>(sample.size());
  RC_ASSERT(std::abs(histogram.mean() - mean) <= mean / 1000 + 1);
}

TEST(HdrHistogram, WhatWasAddedCanBeSubtracted) {
  HdrHistogram first;
  first.record(10, 3);
  HdrHistogram both = first;
  both.record(5'000'000, 2);
  both.subtract(first);
  EXPECT_EQ(both.count(), 2U);
  EXPECT_EQ(both.min(), HdrBuckets::lowest(HdrBuckets::index(5'000'000)));
}

TEST(LatencyRecorder, CanBeReadWhileItIsWritten) {
  constexpr std::uint64_t kRecorded = 100'000;
  LatencyRecorder recorder;
  std::thread writer([&] {
    for (std::uint64_t i = 0; i < kRecorded; ++i)
      recorder.record(i);
  });
  std::uint64_t before = 0;
  while (before < kRecorded) {
    HdrHistogram now;
    recorder.add_to(now);
    EXPECT_GE(now.count(), before);
    EXPECT_LE(now.count(), kRecorded);
    before = now.count();
  }
  writer.join();
}

// -------------------------------------------------------------------------------------- logs

struct Logged {
  double start = 0;
  double length = 0;
  double most = 0;
  std::uint64_t count = 0;
  std::uint64_t p50 = 0;
  std::uint64_t p99 = 0;
  std::uint64_t highest = 0;
};

std::vector<Logged> read_log(const std::string& path) {
  const auto ended =
      testing_support::run_program({"/usr/bin/python3", "tests/bench/hlog_reader.py", path}, 60);
  EXPECT_EQ(ended.status, 0) << ended.output;
  std::vector<Logged> lines;
  std::istringstream in(ended.output);
  for (Logged one;
       in >> one.start >> one.length >> one.most >> one.count >> one.p50 >> one.p99 >> one.highest;)
    lines.push_back(one);
  return lines;
}

TEST(HdrLog, IsReadBackByAnotherReader) {
  const testing_support::ScratchDirectory directory;
  HdrLog log(directory.path("run-"));
  Row first{.name = "READ", .latency = {}, .outcomes = {}};
  for (std::uint64_t i = 0; i < 1000; ++i)
    first.latency.record(i * i * 1000);
  Row second{.name = "READ", .latency = {}, .outcomes = {}};
  second.latency.record(7, 1'000'000'000'000);  // more than a histogram's line has room for, stored
  second.latency.record(HdrBuckets::kMost);
  log.add({first});
  log.add({});
  log.add({second});
  EXPECT_EQ(log.problem(), "");
  const auto lines = read_log(directory.path("run-READ.hdr"));
  ASSERT_EQ(lines.size(), 2U);
  const HdrHistogram* written[] = {&first.latency, &second.latency};
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(lines[i].count, written[i]->count());
    EXPECT_EQ(lines[i].p50, written[i]->percentile(50));
    EXPECT_EQ(lines[i].p99, written[i]->percentile(99));
    EXPECT_EQ(lines[i].highest, written[i]->max());
    EXPECT_NEAR(lines[i].most, static_cast<double>(written[i]->max()) / 1e6, 0.001);
  }
}

TEST(HdrLog, AManyBucketHistogramTakesSeveralBlocks) {
  const testing_support::ScratchDirectory directory;
  HdrLog log(directory.path(""));
  Row row{.name = "SCAN", .latency = {}, .outcomes = {}};
  for (std::size_t i = 0; i < HdrBuckets::kCount - 5000; ++i)
    row.latency.add_at(i, i * 1'000'003 + 1);
  log.add({row});
  const auto lines = read_log(directory.path("SCAN.hdr"));
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0].count, row.latency.count());
  EXPECT_EQ(lines[0].p99, row.latency.percentile(99));
}

TEST(HdrLog, AFolderThatIsNotThereIsTold) {
  HdrLog log("/nowhere/");
  Row row{.name = "READ", .latency = {}, .outcomes = {}};
  row.latency.record(1);
  log.add({row});
  EXPECT_EQ(log.problem(),
            "cannot write the histogram log /nowhere/READ.hdr: No such file or directory");
}

// ------------------------------------------------------------------------------ measurements

TEST(Measurements, FailedOnesAreCountedApart) {
  Measurements thread(Interval::kOperation);
  thread.operation(Kind::kRead, Outcome::kOk, {.due = 0, .begin = 100, .end = 300});
  thread.operation(Kind::kRead, Outcome::kNotFound, {.due = 0, .begin = 100, .end = 400});
  const auto rows = collect({&thread});
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].name, "READ");
  EXPECT_EQ(rows[0].latency.max(), 200U);
  EXPECT_EQ(rows[0].outcomes[0], 1U);
  EXPECT_EQ(rows[0].outcomes[static_cast<std::size_t>(Outcome::kNotFound)], 1U);
  EXPECT_EQ(rows[1].name, "READ-FAILED");
  EXPECT_EQ(rows[1].latency.max(), 300U);
}

// An operation that waits because the one before it stalled: the plain row omits the wait.
TEST(Measurements, IntendedRowsCountFromWhenAnOperationWasDue) {
  Measurements both(Interval::kBoth);
  Measurements alone(Interval::kIntended);
  for (Measurements* one : {&both, &alone})
    one->operation(Kind::kUpdate, Outcome::kOk, {.due = 1000, .begin = 2500, .end = 2600});
  const auto rows = collect({&both});
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].name, "UPDATE");
  EXPECT_EQ(rows[0].latency.max(), 100U);
  EXPECT_EQ(rows[1].name, "Intended-UPDATE");
  EXPECT_EQ(rows[1].latency.max(), 1600U);
  const auto single = collect({&alone});
  ASSERT_EQ(single.size(), 1U);
  EXPECT_EQ(single[0].name, "UPDATE");
  EXPECT_EQ(single[0].latency.max(), 1600U);
  EXPECT_EQ(single[0].outcomes[0], 1U);
}

TEST(Measurements, ThreadsAreAddedAndIntervalsSubtracted) {
  Measurements first(Interval::kOperation);
  Measurements second(Interval::kOperation);
  first.operation(Kind::kInsert, Outcome::kOk, {.due = 0, .begin = 0, .end = 10});
  const auto before = collect({&first, &second});
  second.operation(Kind::kInsert, Outcome::kOk, {.due = 0, .begin = 0, .end = 20});
  const auto now = collect({&first, &second});
  ASSERT_EQ(now.size(), 1U);
  EXPECT_EQ(now[0].latency.count(), 2U);
  const auto fresh = since(now, before);
  ASSERT_EQ(fresh.size(), 1U);
  EXPECT_EQ(fresh[0].latency.min(), 20U);
  EXPECT_EQ(fresh[0].outcomes[0], 1U);
  EXPECT_TRUE(since(now, now).empty());
}

}  // namespace
}  // namespace rkv::kvbench
