/* What is seen of a child that lives, is stopped, goes on, has ended, and is waited for. */
#include "common/process_state.h"

#include "common/clock.h"
#include "tests/support/cmocka.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void expect_soon(const psc_process_id_t *process, psc_process_state_t state)
{
    int number;
    uint64_t until_us = psc_clock_us() + 120000000;
    while (psc_process_look(process, &number) != state) {
        assert_true(psc_clock_us() < until_us);
        psc_clock_sleep_us(1000);
    }
    assert_int_equal(number, state == PSC_PROCESS_GONE ? SIGKILL : 0);
}

static void expect_now(const psc_process_id_t *process, psc_process_state_t state)
{
    int number = -1;
    assert_int_equal(psc_process_look(process, &number), state);
    assert_int_equal(number, 0);
}

static void a_child_is_seen_to_stop_to_go_on_and_to_end_by_a_signal(void **unused)
{
    (void)unused;
    int ends[2];
    psc_process_id_t child = {.pid = 0};
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        child = psc_process_self();
        ssize_t written = write(ends[1], &child, sizeof child);
        while (written == (ssize_t)sizeof child)
            (void)pause();
        _exit(1);
    }
    assert_int_equal(read(ends[0], &child, sizeof child), sizeof child);
    assert_int_equal(child.pid, pid);
    expect_now(&child, PSC_PROCESS_LIVES);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    expect_soon(&child, PSC_PROCESS_STOPPED);
    assert_int_equal(kill(pid, SIGCONT), 0);
    expect_soon(&child, PSC_PROCESS_LIVES);
    assert_int_equal(kill(pid, SIGKILL), 0);
    expect_soon(&child, PSC_PROCESS_GONE);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    expect_now(&child, PSC_PROCESS_GONE);
    assert_int_equal(close(ends[0]) + close(ends[1]), 0);
}

static void who_is_of_another_machine_is_elsewhere_and_who_is_not_known_lives(void **unused)
{
    (void)unused;
    psc_process_id_t self = psc_process_self();
    assert_int_equal(self.pid, getpid());
    assert_true(self.started != 0);
    expect_now(&self, PSC_PROCESS_LIVES);
    self.started++; /* another one had this number */
    expect_now(&self, PSC_PROCESS_GONE);
    self.host[0] ^= 1;
    expect_now(&self, PSC_PROCESS_ELSEWHERE);
    self.host[0] ^= 1;
    self.started = 0;
    expect_now(&self, PSC_PROCESS_LIVES);
}

static void whoever_started_the_group_is_known_through_one_in_between(void **unused)
{
    (void)unused;
    int ends[2];
    int32_t found[2] = {-1, -1};
    assert_int_equal(pipe(ends), 0);
    const pid_t leader = fork();
    assert_true(leader >= 0);
    if (leader == 0) {
        if (setpgid(0, 0) != 0)
            _exit(1);
        found[0] = psc_process_group_parent();
        const pid_t member = fork();
        if (member == 0) {
            found[1] = psc_process_group_parent();
            _exit(write(ends[1], found, sizeof found) != (ssize_t)sizeof found);
        }
        (void)waitpid(member, NULL, 0);
        _exit(member < 0);
    }
    int status = -1;
    assert_int_equal(read(ends[0], found, sizeof found), sizeof found);
    assert_int_equal(waitpid(leader, &status, 0), leader);
    assert_int_equal(status, 0);
    assert_int_equal(found[0], getpid());
    assert_int_equal(found[1], getpid());
    assert_int_equal(close(ends[0]) + close(ends[1]), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_is_seen_to_stop_to_go_on_and_to_end_by_a_signal),
        cmocka_unit_test(who_is_of_another_machine_is_elsewhere_and_who_is_not_known_lives),
        cmocka_unit_test(whoever_started_the_group_is_known_through_one_in_between),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
