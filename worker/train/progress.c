/*
 * Progress lines. Speed and loss are those of the time since the last line, so that a change shows;
 * the time left goes by the speed of about the last ten seconds, which a person can plan with.
 *
 * Time is given by the caller. A line costs some microseconds, a look whether one is due a few
 * nanoseconds. Write errors of the JSON file are told at the end: they must not end a training. A
 * stream that failed, since its reader left, gets no more lines.
 */
#include "worker/train/progress.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "common/file.h"
#include "worker/programs/json_real.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#define TERMINAL_US UINT64_C(250000)
#define PLAIN_US UINT64_C(5000000)
#define JSON_US UINT64_C(1000000)
#define SPEED_S 10.0 /* time constant of the speed that the time left goes by */

/* One kind of lines: when the last one was, and the counts then. */
typedef struct track {
    uint64_t period_us, last_us;
    psw_train_counts_t last;
} track_t;

struct psw_progress {
    psw_progress_options_t options;
    track_t shown, logged;
    FILE *json;
    bool open_line;    /* on the terminal */
    double speed;      /* words a second, smoothed */
    uint64_t speed_us; /* when it was taken */
    uint64_t speed_words;
    psw_train_counts_t last; /* as reported last, for a run that does not reach its end */
    uint64_t last_us;
};

/* What a line says. */
typedef struct figures {
    double time_s, done, words_per_s, rate, loss, rows_per_s, left_s;
} figures_t;

void psw_format_number(double value, char text[PSW_FORMAT_SIZE])
{
    static const char units[] = {'K', 'M', 'G', 'T', 'P'};
    if (value < 999.5) {
        (void)snprintf(text, PSW_FORMAT_SIZE, "%.0f", value > 0 ? value : 0.0);
        return;
    }
    size_t unit = 0;
    for (value /= 1000; value >= 999.5 && unit + 1 < sizeof units; unit++)
        value /= 1000;
    int digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    (void)snprintf(text, PSW_FORMAT_SIZE, "%.*f%c", digits, value < 1e6 ? value : 1e6, units[unit]);
}

void psw_format_duration(double seconds, char text[PSW_FORMAT_SIZE])
{
    uint64_t s = seconds > 0 && seconds < 3.6e8 ? (uint64_t)(seconds + 0.5) : 0;
    if (s >= 3600)
        (void)snprintf(text, PSW_FORMAT_SIZE, "%" PRIu64 ":%02u:%02u", s / 3600,
                       (unsigned)(s / 60 % 60), (unsigned)(s % 60));
    else
        (void)snprintf(text, PSW_FORMAT_SIZE, "%u:%02u", (unsigned)(s / 60), (unsigned)(s % 60));
}

psc_status_t psw_progress_create(const psw_progress_options_t *options,
                                 psw_progress_t **progress_out, psc_error_t *error)
{
    psw_progress_t *progress = psc_alloc_zeroed(1, sizeof *progress);
    if (progress == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for the progress line");
    progress->options = *options;
    progress->shown = (track_t){.period_us = options->terminal ? TERMINAL_US : PLAIN_US,
                                .last_us = options->now_us};
    progress->logged = (track_t){.period_us = JSON_US, .last_us = options->now_us};
    progress->speed_us = options->now_us;
    if (options->json_path != NULL) {
        psc_status_t st = psc_file_check_output(options->json_path, error);
        if (st == PSC_OK && (progress->json = fopen(options->json_path, "we")) == NULL)
            st = psc_error_set_errno(error, errno, "%s cannot be written", options->json_path);
        if (st != PSC_OK) {
            psc_free(progress);
            return st;
        }
    }
    *progress_out = progress;
    return PSC_OK;
}

/* "12345 pushes of 6789012 rows, each applied once", or what the servers have instead. */
static void show_account(psw_progress_t *progress, const psw_account_t *account)
{
    if (account->pushes == 0)
        return;
    (void)fprintf(progress->options.stream, "%" PRIu64 " pushes of %" PRIu64 " rows, ",
                  account->pushes, account->rows);
    if (account->pushes == account->pushes_applied && account->rows == account->rows_applied)
        (void)fprintf(progress->options.stream, "each applied once\n");
    else
        (void)fprintf(progress->options.stream, "but %" PRIu64 " of %" PRIu64 " rows applied\n",
                      account->pushes_applied, account->rows_applied);
}

/* What was trained before a time of this run, when it was so many words. */
static uint64_t before_this(const psw_train_counts_t *counts, uint64_t words)
{
    return words > counts->resumed_words ? words : counts->resumed_words;
}

static figures_t figure(const psw_progress_t *progress, const track_t *since,
                        const psw_train_counts_t *counts, uint64_t now_us)
{
    const psw_train_counts_t *last = &since->last;
    double seconds = (double)(now_us - since->last_us) * 1e-6;
    double inverse = seconds > 0 ? 1 / seconds : 0;
    uint64_t pairs = counts->loss_pairs - last->loss_pairs;
    uint64_t all = progress->options.words;
    uint64_t before = before_this(counts, last->total_words);
    uint64_t done = counts->total_words < all ? counts->total_words : all;
    return (figures_t){
        .time_s = (double)(now_us - progress->options.now_us) * 1e-6,
        .done = all > 0 ? (double)done / (double)all : 1,
        .words_per_s = (double)(counts->total_words - before) * inverse,
        .rate = counts->rate,
        .loss = pairs > 0 ? (counts->loss - last->loss) / (double)pairs : 0,
        .rows_per_s = (double)(counts->rows - last->rows) * inverse,
        .left_s = progress->speed > 0 ? (double)(all - done) / progress->speed : 0,
    };
}

/* After lines were written: a stream that failed is left alone from now on. */
static void flush_stream(psw_progress_t *progress, bool open_line)
{
    FILE *stream = progress->options.stream;
    bool failed = fflush(stream) != 0 || ferror(stream) != 0;
    progress->open_line = open_line && !failed;
    if (failed)
        progress->options.stream = NULL;
}

static void show(psw_progress_t *progress, const psw_train_counts_t *counts, const figures_t *now)
{
    char words[PSW_FORMAT_SIZE], rows[PSW_FORMAT_SIZE], in[PSW_FORMAT_SIZE], out[PSW_FORMAT_SIZE],
        left[PSW_FORMAT_SIZE];
    psw_format_number(now->words_per_s, words);
    psw_format_number(now->rows_per_s, rows);
    psw_format_number((double)counts->bytes_received, in);
    psw_format_number((double)counts->bytes_sent, out);
    psw_format_duration(now->left_s, left);
    (void)fprintf(progress->options.stream,
                  "%s%5.1f%%  %s words/s  rate %.5f  loss %.3f  %s rows/s  in %sB  out %sB  "
                  "left %s%s",
                  progress->options.terminal ? "\r" : "", now->done * 100, words, now->rate,
                  now->loss, rows, in, out, left, progress->options.terminal ? "\033[K" : "\n");
    flush_stream(progress, progress->options.terminal);
}

/* The account of a training that is over. */
static void add_account(json_t *line, const psw_account_t *account)
{
    const struct {
        const char *name;
        uint64_t value;
    } all[] = {{"pushes", account->pushes},
               {"pushes_applied", account->pushes_applied},
               {"rows_pushed", account->rows},
               {"rows_applied", account->rows_applied}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        (void)json_object_set_new(line, all[i].name, json_integer((json_int_t)all[i].value));
}

static void log_line(psw_progress_t *progress, const char *event, const psw_train_counts_t *counts,
                     const figures_t *now)
{
    json_t *line = json_pack(
        "{s:s, s:f, s:f, s:I, s:f, s:f, s:o, s:I, s:I, s:I, s:f}", "event", event, "time_s",
        now->time_s, "done", now->done, "words", (json_int_t)counts->total_words, "words_per_s",
        now->words_per_s, "rate", now->rate, "loss", psw_json_real(now->loss), "rows",
        (json_int_t)counts->rows, "bytes_in", (json_int_t)counts->bytes_received, "bytes_out",
        (json_int_t)counts->bytes_sent, "left_s", now->left_s);
    if (line == NULL)
        return;
    if (counts->account.pushes != 0)
        add_account(line, &counts->account);
    (void)json_dumpf(line, progress->json, JSON_COMPACT | JSON_REAL_PRECISION(9));
    (void)fputc('\n', progress->json);
    (void)fflush(progress->json);
    json_decref(line);
}

static void take_speed(psw_progress_t *progress, const psw_train_counts_t *counts, uint64_t now_us)
{
    double seconds = (double)(now_us - progress->speed_us) * 1e-6;
    uint64_t before = before_this(counts, progress->speed_words);
    if (seconds < 0.2 || counts->total_words < before)
        return;
    double speed = (double)(counts->total_words - before) / seconds;
    double weight = progress->speed > 0 ? seconds / (seconds + SPEED_S) : 1;
    progress->speed += weight * (speed - progress->speed);
    progress->speed_us = now_us;
    progress->speed_words = counts->total_words;
}

static void advance(track_t *track, const psw_train_counts_t *counts, uint64_t now_us)
{
    track->last = *counts;
    track->last_us = now_us;
}

void psw_progress_update(psw_progress_t *progress, const psw_train_counts_t *counts,
                         uint64_t now_us)
{
    take_speed(progress, counts, now_us);
    progress->last = *counts;
    progress->last_us = now_us;
    track_t *shown = &progress->shown, *logged = &progress->logged;
    if (progress->options.stream != NULL && now_us - shown->last_us >= shown->period_us) {
        figures_t now = figure(progress, shown, counts, now_us);
        show(progress, counts, &now);
        advance(shown, counts, now_us);
    }
    if (progress->json != NULL && now_us - logged->last_us >= logged->period_us) {
        figures_t now = figure(progress, logged, counts, now_us);
        log_line(progress, "progress", counts, &now);
        advance(logged, counts, now_us);
    }
}

void psw_progress_report(void *progress, const psw_train_counts_t *counts)
{
    psw_progress_update(progress, counts, psc_clock_us());
}

psc_status_t psw_progress_finish(psw_progress_t *progress, const psw_train_counts_t *counts,
                                 uint64_t now_us, psc_error_t *error)
{
    /* The last figures are of the whole run. */
    track_t whole = {.last_us = progress->options.now_us};
    progress->speed = 0;
    figures_t now = figure(progress, &whole, counts, now_us);
    if (progress->options.stream != NULL) {
        char words[PSW_FORMAT_SIZE], speed[PSW_FORMAT_SIZE], time[PSW_FORMAT_SIZE];
        psw_format_number((double)(counts->total_words - counts->resumed_words), words);
        psw_format_number(now.words_per_s, speed);
        psw_format_duration(now.time_s, time);
        (void)fprintf(progress->options.stream,
                      "%strained %s words in %s (%.1f s), %s words/s, loss %.3f%s\n",
                      progress->options.terminal ? "\r" : "", words, time, now.time_s, speed,
                      now.loss, progress->options.terminal ? "\033[K" : "");
        show_account(progress, &counts->account);
        flush_stream(progress, false);
    }
    if (progress->json == NULL)
        return PSC_OK;
    log_line(progress, "done", counts, &now);
    bool failed = ferror(progress->json) != 0;
    int closed = fclose(progress->json), errno_value = errno;
    progress->json = NULL;
    if (failed || closed != 0)
        return psc_error_set_errno(error, closed != 0 ? errno_value : EIO,
                                   "%s could not be written whole", progress->options.json_path);
    return PSC_OK;
}

void psw_progress_destroy(psw_progress_t *progress)
{
    if (progress == NULL)
        return;
    if (progress->open_line)
        (void)fputc('\n', progress->options.stream);
    if (progress->json != NULL) { /* not finished: the last figures that were reported stay so */
        track_t whole = {.last_us = progress->options.now_us};
        figures_t now = figure(progress, &whole, &progress->last, progress->last_us);
        log_line(progress, "stopped", &progress->last, &now);
        (void)fclose(progress->json);
    }
    psc_free(progress);
}
