"""GETs racing writers: values that the client returned although they were torn or older than one it
had returned before. --storm-gets makes them as many as the row promises, which takes hours."""

from common import Failed, kvserver, program, progress

FLAGS = {"--storm-gets": (2_000_000, "in each measurement"),
         "--least-tears": (1, "that the client must have noticed")}


def measure(options, figures):
    total = 0
    with kvserver(options):
        for _ in range(options.repetitions):
            one = program(options, "bench_storm", "storm", gets=options.storm_gets)
            figures.runs.append({"storm": one})
            if one["tears_detected"] < options.least_tears:
                raise Failed("nothing was torn, so that nothing is proved")
            figures.add("torn or older values returned",
                        one["tears_undetected"] + one["older_after_newer"], 0)
            total += one["gets"]
            progress(f"{one['gets']} GETs, {one['puts']} PUTs, {one['tears_detected']} tears noticed")
    figures.add("GETs that raced writers", total)
