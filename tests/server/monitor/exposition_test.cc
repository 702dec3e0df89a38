#include "server/monitor/exposition.h"

#include <gtest/gtest.h>

#include <limits>

namespace rkv::server {
namespace {

TEST(Exposition, FamiliesAndSamples) {
  Exposition out;
  out.family("kvserver_things_total", "counter", "Things.");
  out.sample({{"kind", "a"}, {"place", "b"}}, 12);
  out.sample({}, 0.5);
  out.family("kvserver_time_seconds", "histogram", "Time.");
  out.part("_bucket", {{"le", "+Inf"}}, std::uint64_t{3});
  EXPECT_EQ(out.text(),
            "# HELP kvserver_things_total Things.\n"
            "# TYPE kvserver_things_total counter\n"
            "kvserver_things_total{kind=\"a\",place=\"b\"} 12\n"
            "kvserver_things_total 0.5\n"
            "# HELP kvserver_time_seconds Time.\n"
            "# TYPE kvserver_time_seconds histogram\n"
            "kvserver_time_seconds_bucket{le=\"+Inf\"} 3\n");
}

TEST(Exposition, WhatWouldEndALabelIsEscaped) {
  Exposition out;
  out.family("x", "gauge", "One\nline, a \\ and a \".");
  out.sample({{"device", "a\"b\\c\nd"}}, 1);
  EXPECT_EQ(out.text(),
            "# HELP x One\\nline, a \\\\ and a \".\n# TYPE x gauge\n"
            "x{device=\"a\\\"b\\\\c\\nd\"} 1\n");
}

TEST(Exposition, NumbersAreReadBackAsTheyWere) {
  EXPECT_EQ(Exposition::number(1.024e-6), "1.024e-06");
  EXPECT_EQ(Exposition::number(0.1), "0.1");
  EXPECT_EQ(Exposition::number(std::numeric_limits<double>::infinity()), "+Inf");
}

}  // namespace
}  // namespace rkv::server
