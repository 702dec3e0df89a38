/* Which primary a client may believe: leases, tick line, take-over, joining, suspends, hand-over.
 *
 * One key in a replicated group. P is the primary of term 1. Its backups may become primary of term
 * 2, and P need not notice. A client calls GET again and again and READs the memory of P.
 *
 * Time: `clock` passes one unit for everybody. Any other steps may lie between two units, so a host
 * may be as slow or as paused as it likes between any two of its steps while its memory is READ. A
 * moment in the future is stored as the units that are left until then, so that no run is too long.
 * Drift is in the constants: a lease of L(1-e) by P's clock is over after L units at most, a wait of
 * L(1+e) by a backup's clock takes L units at least. The model gives P all of L and lets a backup
 * wait L. The client knows the difference of the clocks exactly, its worst case (drift.py).
 *
 * A message, its answer and the answer's arrival are one step, `promise` (or `take`, which carries
 * an entry): the message was sent 0 to L units before, and P may use the answer as late as it likes.
 * A writer has its answer when the mark passes its entry; a later answer asks less of the reader.
 *
 * Left out: how a record is READ (record.pml, pair.pml, split.pml); the terms of entries and the
 * third replica's copy (log.pml, takeover.pml); ends of processes (log.pml).
 *
 * accept: one backup
 * accept-long L=3: a longer lease
 * accept-long WRITES=2 CHANGES=1: two writes
 * accept NEWEST_LINE: instead of records of removed keys: the newest sequence, READ after a miss
 * accept REFUSALS: refusals, which are reads
 * accept-long REFUSALS REFUSAL_BY_LEASE: the server compares its own lease and sends no t
 * accept SUSPENDED_PRIMARY WRITES=0 CHANGES=2: the primary's clock stops for a time; the client's difference of the clocks is older
 * accept-long SUSPENDED_PRIMARY LEARNT_AGAIN WRITES=0 CHANGES=2: or is measured again, by an answer that waits for a round with the backups
 * accept-long SUSPENDED_PRIMARY REFUSALS WRITES=0 CHANGES=2: refusals carry t
 * accept-long JOIN_HEARD: instead of a joiner's wait: its promise to a message after the view counts it
 * accept-long SILENT: instead of the wait before acting: no answers since the transaction was sent, and a wait before it
 * accept-long BACK_BY_NEW_PROCESS: a backup that was removed comes back as another process alone; it need not notice removals
 * accept HAND_OVER: the primary hands over: no more ticks, and a backup acts when the last has run out
 * accept-long HAND_OVER REFUSALS: and refusals
 * accept-long HAND_OVER TOLD_BEHIND: a backup is told that is behind: what was answered it has
 * accept-long HAND_OVER TOLD_ANYBODY: a backup is told that is not in sync: it cannot take over
 * accept-long BACKUPS=2 CHANGES=2: two backups
 * accept-long HAND_OVER BACKUPS=2 CHANGES=1: two backups, of which one is told
 * accept-long HAND_OVER WRITES=2: a hand-over with two writes
 * accept-long WRITES=2: two writes, three transactions
 * accept-long NEWEST_LINE WRITES=2: the same with the newest sequence
 * accept-long REFUSALS WRITES=2: the same with refusals
 * accept-long L=4 W=2: finer time
 * accept-long REFUSALS REFUSAL_BY_LEASE L=3 W=2: the server's own lease, in finer time
 * accept-long JOIN_HEARD CHANGES=5: five transactions
 * accept-long SILENT CHANGES=5: five transactions
 * accept-long BACK_BY_NEW_PROCESS CHANGES=5: five transactions
 * reject NO_TICK: every GET is believed
 * reject LEASE_FROM_ANSWER: the lease is counted from when the answer arrives
 * reject T_AFTER_LOOK: t is read after the lease was compared
 * reject NO_MARGIN: lease and wait are equally long, so drift is not covered
 * reject SHRINK_EARLY: the view is smaller before the transaction is known to have succeeded
 * reject JOIN_EARLY: a joiner is added before it has what was shown
 * reject EXEMPT_LATE: a primary alone needs no lease until it knows that the transaction succeeded
 * reject JOIN_NO_WAIT: a joiner does not wait since it learnt that it is in sync
 * reject MISSED_REMOVAL: a backup that was removed and added again has not noticed
 * reject ACT_AT_ONCE: a backup waits before its transaction, answers on, and acts when it has succeeded
 * reject SUSPENDED_CLIENT: the client's clock stops during a suspend
 * reject SUSPENDED_PRIMARY LEARNT_AGAIN NO_ROUND WRITES=0 CHANGES=2: the difference is measured again without a round
 * reject SUSPENDED_PRIMARY REFUSALS REFUSAL_BY_LEASE WRITES=0 CHANGES=2: its own clock does not tell a server that it was stopped
 * reject REFUSALS REFUSAL_NO_T: a refusal is believed without t
 * reject REFUSALS REFUSAL_NO_MARK: a refusal shows what is not replicated
 * reject HIT_NO_MARK: a value is answered before the mark has passed it
 * reject MISS_NO_MARK: a miss is answered before the mark has passed the removal
 * reject CLEARED_EARLY: the record of a removed key goes before the mark has passed the removal
 * reject HAND_OVER RELEASED_EARLY: a primary hands over while a tick still covers calls
 * reject HAND_OVER TICKS_ON: a primary that has handed over ticks as long as its lease lasts
 * reject NEWEST_LINE NEWEST_LATE: the newest sequence is written after the removal is seen
 */
#ifndef BACKUPS
#define BACKUPS 1
#endif
#ifndef WRITES
#define WRITES 1
#endif
#ifndef L
#define L 2
#endif
#ifndef W
#define W 1
#endif
#ifndef CHANGES
#define CHANGES 3 /* transactions that succeed */
#endif
#ifdef NO_MARGIN
#define LEASE (L + 1)
#else
#define LEASE L
#endif
#if BACKUPS == 2
#define ALL 6
#define BOTH(f) f(1) && f(2)
#else
#define ALL 2
#define BOTH(f) f(1)
#endif
#define B(b) (1 << (b))
#define TERM_2 15 /* the position of the write in term 2 */

/* P. Writes have positions 1, 2, ...; 0 is the value that the key has at the start. */
byte begun, published, mark;
bool removes[WRITES + 1];
byte cleared; /* the removal whose record is not in memory any more */
byte newest;  /* NEWEST_LINE: the newest sequence, in a line of its own */
byte lease[3]; /* by backup: what is left of its promise, by P's clock */
byte view;     /* who is in sync, as far as P knows or fears */
byte lease_view; /* EXEMPT_LATE: the same for leases */
bool behind;     /* etcd has changed since P read it */
bool ended;
byte tx; /* P's transaction that is not over: the new set + 1 */
byte adding;
#ifdef HAND_OVER
bool handing_over; /* P writes no tick */
bool told[3];      /* the backup may act: P has given up its lease */
#ifdef TICKS_ON
#define TICKS (!ended)
#else
#define TICKS (!ended && !handing_over)
#endif
#define TOLD(b) told[b]
#else
#define TICKS (!ended)
#define TOLD(b) false
#endif

/* backups 1 and 2 */
byte has[3], wait[3];
bool knows[3]; /* that it is in sync */
bool asks[3];  /* its transaction is not over */
bool acts[3];

/* etcd */
byte in_sync, primary, changes;

/* The tick line: t + W - now, and whether it covers the beginning of the GET that is under way. */
byte ticking, next, line;
bool next_covers, line_covers;

/* The client. phase 0: idle, 1: called, 2: record READ, 3: no record, 4: newest READ, 5: ready,
 * 6: a request, 7: the server has looked. */
byte phase, v, since, line_newest;
bool covered, miss;

byte settled; /* the position that a call which begins now must see */

#ifdef LEASE_FROM_ANSWER
bool answered[3];
#endif
#ifdef SUSPENDED_PRIMARY
byte lag;     /* units that P's clock was stopped since the client measured the difference */
byte lag_at_call, age; /* the units at the call; units of P's clock since the call */
bool slept, asked;
byte heard;
#define T_COVERS (phase && W + age > lag_at_call)
#define LINE_COVERS(x) ((x) > lag)
#else
#define T_COVERS (phase > 0)
#define LINE_COVERS(x) ((x) > 0)
#endif

hidden byte i;

#ifdef EXEMPT_LATE
#define SET_LEASE_VIEW lease_view = view
#define LEASE_VIEW lease_view
#else
#define SET_LEASE_VIEW skip
#define LEASE_VIEW view
#endif
#define PROMISED_1(b) (!(LEASE_VIEW & B(b)) || lease[b] >= 1)
#define PROMISED_W(b) (!(LEASE_VIEW & B(b)) || lease[b] >= W)
#define PROMISED_NEXT(b) (!(LEASE_VIEW & B(b)) || lease[b] >= (next -> next : 1))
#define HAS_NEXT(b) (!(view & B(b)) || has[b] > mark)

/* ---- time ---- */

#define LESS(x) if :: x > 0 -> x-- :: else fi
inline clock() {
  d_step {
    LESS(next); LESS(line);
    LESS(lease[1]); LESS(wait[1]);
#if BACKUPS == 2
    LESS(lease[2]); LESS(wait[2]);
#endif
#ifdef SUSPENDED_PRIMARY
    if :: phase && age < L -> age++ :: else fi;
#endif
    skip
  }
}
#ifdef SUSPENDED_CLIENT
inline clock_of_the_others() { d_step { ticking == 0 -> LESS(lease[1]); LESS(wait[1]) } }
#endif
#ifdef SUSPENDED_PRIMARY
/* What P measures stands still: its lease, and its t, which the client compares with its clock. */
inline clock_of_the_others() { d_step { !slept && lag < L + 1 -> lag++; LESS(wait[1]) } }
inline wake_up() { d_step { !slept && lag -> slept = true } }
#endif

/* ---- writes ---- */

inline begin(kind) {
  d_step {
    !ended && begun < WRITES && begun == published ->
    begun++; removes[begun] = kind;
#if defined(NEWEST_LINE) && !defined(NEWEST_LATE)
    newest = begun;
#endif
    skip
  }
}
inline publish() { d_step { !ended && published < begun -> published = begun } }
inline write_newest() { d_step { newest < published -> newest = published } }
inline raise_mark() {
  d_step {
    !ended && mark < published && BOTH(HAS_NEXT) -> mark++;
    if :: settled < mark -> settled = mark :: else fi
  }
}
#ifdef CLEARED_EARLY
#define MAY_CLEAR true
#else
#define MAY_CLEAR (mark >= published)
#endif
inline clear() {
  d_step {
    !ended && published == begun && removes[published] && cleared < published && MAY_CLEAR ->
    cleared = published
  }
}

/* ---- messages ---- */

#ifdef SILENT
#define ANSWERS(b) (!asks[b] && primary != b)
#else
#define ANSWERS(b) (!acts[b])
#endif
inline promise(b, d) { /* to a message that was sent d units ago */
  d_step {
    !ended && ANSWERS(b) && (d <= LEASE) && (wait[b] < L || lease[b] < LEASE - (d)) ->
    wait[b] = L;
#ifdef LEASE_FROM_ANSWER
    answered[b] = true;
#else
    if :: adding != b && lease[b] < LEASE - (d) -> lease[b] = LEASE - (d) :: else fi;
#endif
    skip
  }
}
inline take(b) { d_step { !ended && ANSWERS(b) && has[b] < published -> has[b]++; wait[b] = L } }
#ifdef LEASE_FROM_ANSWER
inline answer_arrives(b) {
  d_step {
    answered[b] && !ended ->
    lease[b] = LEASE; answered[b] = false
  }
}
#endif
#ifdef SUSPENDED_PRIMARY
inline round(b) {
  d_step {
    !ended && ANSWERS(b) && asked && !(heard & B(b)) ->
    heard = heard | B(b); wait[b] = L
  }
}
#endif

/* ---- the configuration ---- */

inline remove_(b) {
  d_step {
    !ended && !behind && tx == 0 && !adding && (view & B(b)) && primary == 0 && changes < CHANGES ->
    tx = (view & (7 - B(b))) + 1;
#ifdef SHRINK_EARLY
    view = tx - 1; SET_LEASE_VIEW;
#endif
    skip
  }
}
#ifdef JOIN_EARLY
#define CAUGHT_UP(b) true
#else
#define CAUGHT_UP(b) (has[b] >= mark)
#endif
#ifdef BACK_BY_NEW_PROCESS
#define NEW_PROCESS(b) knows[b] = false; lease[b] = 0
#else
#define NEW_PROCESS(b) skip
#endif
inline add(b) {
  d_step {
    !ended && !behind && tx == 0 && !adding && !(view & B(b)) && primary == 0 &&
      changes < CHANGES && CAUGHT_UP(b) ->
    view = view | B(b);
    NEW_PROCESS(b);
#ifdef JOIN_HEARD
    adding = b; lease[b] = 0
#else
    tx = view + 1
#endif
  }
}
#ifdef JOIN_HEARD
/* A message that is sent now is answered: the transaction may go. */
inline heard_of(b) {
  d_step {
    adding == b && !ended && !behind && ANSWERS(b) ->
    wait[b] = L; lease[b] = LEASE; adding = 0; tx = view + 1
  }
}
#endif
inline learn() {
  d_step {
    behind && !ended ->
    if
    :: primary -> ended = true
    :: else -> view = in_sync | (adding -> B(adding) : 0); behind = false; SET_LEASE_VIEW
    fi
  }
}
#if defined(MISSED_REMOVAL) || defined(BACK_BY_NEW_PROCESS)
#define NOTICE(b) skip
#else
#define NOTICE(b) if :: !(in_sync & B(b)) -> knows[b] = false :: else fi
#endif
inline commit_p() {
  d_step {
    tx -> changes++; in_sync = tx - 1; tx = 0; behind = true; asks[1] = false; asks[2] = false;
    NOTICE(1); NOTICE(2)
  }
}
inline commit(b) {
  d_step {
    asks[b] ->
    changes++; primary = b; tx = 0; behind = true; asks[1] = false; asks[2] = false
  }
}
inline know(b) {
  d_step {
    (in_sync & B(b)) && !knows[b] && primary == 0 -> knows[b] = true;
#if !defined(JOIN_NO_WAIT) && !defined(JOIN_HEARD)
    wait[b] = L;
#endif
    skip
  }
}
#if defined(ACT_AT_ONCE) || defined(SILENT)
#define MAY_ASK(b) (wait[b] == 0)
#define MAY_ACT(b) true
#else
#define MAY_ASK(b) true
#define MAY_ACT(b) (wait[b] == 0 || TOLD(b))
#endif
inline ask(b) {
  d_step {
    (in_sync & B(b)) && knows[b] && primary == 0 && !asks[b] && changes < CHANGES && MAY_ASK(b) ->
    asks[b] = true
  }
}
inline act(b) {
  d_step {
    primary == b && !acts[b] && MAY_ACT(b) ->
    acts[b] = true; assert(settled <= has[b]) /* nothing shown is lost */
  }
}
inline write_in_term_2(b) { d_step { acts[b] && settled < TERM_2 -> settled = TERM_2 } }

/* ---- the tick line ---- */

inline read_clock() {
  d_step {
    TICKS && ticking == 0 ->
#ifdef T_AFTER_LOOK
    if :: BOTH(PROMISED_W) -> ticking = 1 :: else fi;
#else
    ticking = 1; next = W; next_covers = T_COVERS;
#endif
    skip
  }
}
inline compare_lease() { /* a t that is nearly past is written only if the lease is sure to last */
  d_step {
    !ended && ticking == 1 ->
#ifdef T_AFTER_LOOK
    ticking = 2; next = W; next_covers = T_COVERS;
#else
    if
    :: BOTH(PROMISED_NEXT) -> ticking = 2
    :: else -> ticking = 0; next = 0; next_covers = false
    fi;
#endif
    skip
  }
}
inline write_line() {
  d_step {
    ticking == 2 ->
    line = next; line_covers = next_covers; ticking = 0; next = 0; next_covers = false
  }
}

#ifdef HAND_OVER
inline hand_over() { d_step { TICKS && !handing_over && primary == 0 -> handing_over = true } }
inline go_on() { d_step { handing_over && !told[1] && !told[2] -> handing_over = false } }
#ifdef RELEASED_EARLY
#define NO_TICK_COVERS true
#else
#define NO_TICK_COVERS (ticking == 0 && line == 0)
#endif
#ifdef TOLD_BEHIND
#define HAS_ALL(b) true
#else
#define HAS_ALL(b) (mark == begun && has[b] == begun)
#endif
#ifdef TOLD_ANYBODY
#define MAY_FOLLOW(b) true
#else
#define MAY_FOLLOW(b) (!behind && tx == 0 && (view & B(b)) && HAS_ALL(b))
#endif
inline tell(b) { /* P tells b to act at once */
  d_step {
    handing_over && !ended && NO_TICK_COVERS && MAY_FOLLOW(b) && !told[1] && !told[2] ->
    told[b] = true
  }
}
#endif

/* ---- the client ---- */

inline end_call() {
  phase = 0; v = 0; since = 0; line_newest = 0; covered = false; miss = false; line_covers = false;
  next_covers = false;
#ifdef SUSPENDED_PRIMARY
  lag_at_call = 0; age = 0;
#endif
  i = 0
}
inline call() {
  d_step {
    phase == 0 ->
    phase = 1; since = settled; line_covers = LINE_COVERS(line); next_covers = LINE_COVERS(next);
#ifdef SUSPENDED_PRIMARY
    lag_at_call = lag;
#endif
    skip
  }
}
/* A line READ before the call holds an older t. If it covered the call, so would the line now. */
inline read_line() { d_step { phase && phase < 6 && line_covers && !covered -> covered = true } }
inline read_record() {
  d_step {
    phase == 1 ->
    v = published; miss = removes[v];
#ifdef NEWEST_LINE
    phase = (miss -> 3 : 2);
#else
    phase = ((miss && cleared == v) -> 5 : 2); /* no record: removed, and replicated */
#endif
#ifdef HIT_NO_MARK
    if :: !miss -> phase = 5 :: else fi;
#endif
#ifdef MISS_NO_MARK
    if :: miss -> phase = 5 :: else fi;
#endif
    skip
  }
}
inline read_newest() { d_step { phase == 3 -> phase = 4; line_newest = newest } }
inline read_mark() {
  d_step {
    (phase == 2 && mark >= v) || (phase == 4 && mark >= line_newest) ->
    phase = 5
  }
}
#ifdef NO_TICK
#define BELIEVED true
#else
#define BELIEVED covered
#endif
inline answer() {
  d_step {
    phase == 5 && BELIEVED ->
    if
    :: !miss -> i = v
    :: else -> /* the first removal that is not older than the call */
       i = since;
       do :: i <= begun && !removes[i] -> i++ :: else -> break od;
       assert(i <= begun)
    fi;
    assert(i >= since);
    if :: i > settled -> settled = i :: else fi;
    end_call()
  }
}
inline give_up() { d_step { phase -> end_call() } }

/* A request that is answered by what the server sees: a conflict, "not found", a page, a GET. */
#ifdef REFUSALS
inline request() { d_step { phase == 1 -> phase = 6; covered = false } }
inline read_t() {
  d_step {
    phase >= 6 && TICKS && !covered &&
#if defined(REFUSAL_NO_T)
      true
#elif defined(REFUSAL_BY_LEASE)
      BOTH(PROMISED_1)
#else
      BOTH(PROMISED_W) && T_COVERS
#endif
      -> covered = true
  }
}
inline look() { d_step { phase == 6 && !ended -> phase = 7; v = published; miss = removes[v] } }
#ifdef REFUSAL_NO_MARK
#define SHOWN true
#else
#define SHOWN (mark >= v)
#endif
inline refuse() { d_step { phase == 7 && !ended && covered && SHOWN -> phase = 5 } }
#endif

#ifdef LEARNT_AGAIN
#ifdef NO_ROUND
inline measure() { d_step { slept && lag && phase == 0 && !ended -> lag = 0 } }
#else
inline ask_for_measure() { d_step { slept && lag && !asked && !ended -> asked = true } }
inline measure() { /* for later calls: a call under way has its own */
  d_step {
    asked && !ended && phase == 0 && (view & heard) == view ->
    lag = 0; asked = false; heard = 0
  }
}
#endif
#endif

proctype world() {
end:
  do
  :: clock()
#if defined(SUSPENDED_CLIENT) || defined(SUSPENDED_PRIMARY)
  :: clock_of_the_others()
#endif
#ifdef SUSPENDED_PRIMARY
  :: wake_up()
#endif
#ifdef LEARNT_AGAIN
#ifndef NO_ROUND
  :: ask_for_measure() :: round(1)
#endif
  :: measure()
#endif
  :: begin(false) :: begin(true) :: publish() :: raise_mark()
#ifdef NEWEST_LINE
#ifdef NEWEST_LATE
  :: write_newest()
#endif
  :: read_newest()
#else
  :: clear()
#endif
#ifdef HAND_OVER
  :: hand_over() :: go_on() :: tell(1)
#endif
#ifdef JOIN_HEARD
  :: heard_of(1)
#endif
#ifdef LEASE_FROM_ANSWER
  :: answer_arrives(1)
#endif
  :: promise(1, 0) :: promise(1, 1) :: promise(1, 2) :: promise(1, 3) :: promise(1, 4)
  :: take(1) :: remove_(1) :: add(1) :: know(1) :: ask(1) :: commit(1) :: act(1)
  :: write_in_term_2(1)
#if BACKUPS == 2
  :: promise(2, 0) :: promise(2, 1) :: promise(2, 2) :: promise(2, 3) :: promise(2, 4)
  :: take(2) :: remove_(2) :: add(2) :: know(2) :: ask(2) :: commit(2) :: act(2)
  :: write_in_term_2(2)
#ifdef HAND_OVER
  :: tell(2)
#endif
#endif
  :: commit_p() :: learn()
  :: read_clock() :: compare_lease() :: write_line()
  :: call() :: read_line() :: read_record() :: read_mark() :: answer() :: give_up()
#ifdef REFUSALS
  :: request() :: read_t() :: look() :: refuse()
#endif
  od
}

init {
  if
  :: d_step { in_sync = ALL; knows[1] = true; knows[2] = (BACKUPS == 2) }
  :: skip
  fi;
  d_step { view = in_sync; SET_LEASE_VIEW }
  run world()
}
