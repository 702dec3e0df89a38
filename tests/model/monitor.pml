/* Linearizability of one key, watched from outside.
 *
 * The values of the key are numbered: operation i leaves value i, or no value (a DELETE). There is
 * one writer of the key at a time (the pair's lock), so the operations are in order, and a GET is
 * right exactly if it can be given an operation i that
 *   - had begun when the GET ended, and
 *   - is not older than what was acknowledged, or returned by another GET, before this one began.
 * A hit names its operation; a miss takes the oldest DELETE that fits, the weakest claim.
 *
 * A violation always takes two: an operation (or a GET) that ended, and a GET that began later and
 * answers with something older. Readers change nothing that others see, so all other GETs can be
 * taken out of a wrong run and it stays wrong. That is why the models have ONE reader, which calls
 * GET twice, with a cache that may be of any age: it stands for any number of readers. */

byte begun;                   /* the operation that the writer has begun last */
byte settled;                 /* the newest one acknowledged or returned */
bool present[OPERATIONS + 1]; /* whether operation i leaves a value */

inline begin_operation(leaves_value) {
  d_step {
    begun++;
    assert(begun <= OPERATIONS);
    present[begun] = leaves_value
  }
}

inline acknowledge() {
  d_step {
    if
    :: begun > settled -> settled = begun
    :: else
    fi
  }
}

/* The reader's side. `since` is a local of the reader. */
byte since;

inline get_called() { since = settled }

inline get_found(value) {
  d_step {
    assert(value <= begun && present[value]);
    assert(value >= since); /* else: a value older than one that was settled before the call */
    if
    :: value > settled -> settled = value
    :: else
    fi;
    since = 0
  }
}

inline get_missed() {
  d_step {
    do
    :: since <= begun && present[since] -> since++
    :: else -> break
    od;
    assert(since <= begun); /* else: a miss, but the key was there all the time */
    if
    :: since > settled -> settled = since
    :: else
    fi;
    since = 0
  }
}
