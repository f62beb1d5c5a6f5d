/* The driver over a transport that fails, stays silent, or has a server that ends. */
#include "worker/driver.h"

#include "tests/support/cmocka.h"

typedef struct fake {
    psp_transport_t base;
    psp_pool_t *pool;
    psp_scratch_t *scratch;
    psc_slot_map_t map;
    psp_buffer_t *reply; /* what poll gives next */
    bool fail_send;
    bool fail_poll;
    unsigned int mute_after; /* messages answered before silence */
    unsigned int sent;
    unsigned int waits;
    unsigned int goodbyes;
    bool ended;             /* the server has ended */
    bool reply_while_asked; /* it answers between poll and alive */
} fake_t;

/* Answers a message as a server of one would. */
static psp_buffer_t *answer(fake_t *fake, const psp_buffer_t *buffer)
{
    psp_message_t m;
    assert_int_equal(
        psp_message_unpack(fake->scratch, buffer->kind, buffer->data, buffer->size, &m, NULL),
        PSC_OK);
    fake->goodbyes += m.kind == PSP_GOODBYE;
    psp_message_t reply = {.kind = (psp_kind_t)psp_reply_kind(m.kind),
                           .reply = {.request = m.request.request, .error = PSC_ERROR_INIT}};
    if (m.kind == PSP_HELLO)
        reply.u.hello_reply = (psp_hello_reply_t){.cluster = 1,
                                                  .session = 5,
                                                  .n_servers = 1,
                                                  .map_epoch = 1,
                                                  .max_message_bytes = PSP_MAX_MESSAGE_BYTES,
                                                  .slot_owners = (const uint8_t *)fake->map.owner};
    psp_buffer_t *packed = NULL;
    assert_int_equal(psp_message_pack(fake->pool, &reply, &packed, NULL), PSC_OK);
    packed->peer = 0;
    return packed;
}

static psc_status_t fake_send(psp_transport_t *transport, uint32_t peer, psp_buffer_t *buffer,
                              psc_error_t *error)
{
    fake_t *fake = (fake_t *)transport;
    assert_int_equal(peer, 0);
    psc_status_t st = PSC_OK;
    if (fake->fail_send) {
        st = psc_error_set(error, PSC_PEER_GONE, "server 0 is gone");
    } else if (fake->sent++ < fake->mute_after) {
        assert_null(fake->reply);
        fake->reply = answer(fake, buffer);
    } else {
        psp_buffer_put(answer(fake, buffer));
    }
    psp_buffer_put(buffer);
    return st;
}

static psc_status_t fake_poll(psp_transport_t *transport, psp_buffer_t **buffer_out,
                              psc_error_t *error)
{
    fake_t *fake = (fake_t *)transport;
    if (fake->fail_poll)
        return psc_error_set(error, PSC_PROTOCOL, "a message of 2 GiB came");
    *buffer_out = fake->reply_while_asked && !fake->ended ? NULL : fake->reply;
    if (*buffer_out != NULL)
        fake->reply = NULL;
    return PSC_OK;
}

static void fake_wait(psp_transport_t *transport, uint64_t timeout_us)
{
    (void)timeout_us;
    fake_t *fake = (fake_t *)transport;
    if (++fake->waits == 3)
        fake->ended = true;
    assert_true(fake->waits < 10); /* nobody waits for ever */
}

static psc_status_t fake_flush(psp_transport_t *transport, uint64_t timeout_us, psc_error_t *error)
{
    (void)transport;
    (void)timeout_us;
    (void)error;
    return PSC_OK;
}

static psc_status_t fake_alive(void *context, psc_error_t *error)
{
    fake_t *fake = context;
    if (fake->reply_while_asked) {
        fake->ended = true;
        return psc_error_set(error, PSC_DISK_FULL, "the disk is full");
    }
    return fake->ended ? psc_error_set(error, PSC_DISK_FULL, "the disk is full") : PSC_OK;
}

static const psp_transport_ops_t fake_ops = {
    .name = "fake", .send = fake_send, .poll = fake_poll, .wait = fake_wait, .flush = fake_flush};

static psw_driver_t open_driver(fake_t *fake)
{
    memset(fake, 0, sizeof *fake);
    fake->base.ops = &fake_ops;
    fake->base.n_peers = 1;
    fake->mute_after = 1;
    assert_int_equal(psp_pool_create(1 << 20, &fake->pool, NULL), PSC_OK);
    assert_int_equal(psp_scratch_create(1 << 20, &fake->scratch, NULL), PSC_OK);
    assert_int_equal(psc_slot_map_init(&fake->map, 1, NULL), PSC_OK);
    const psw_core_options_t options = {.n_servers = 1, .n_workers = 1, .pool = fake->pool};
    psw_driver_t driver = {.transport = &fake->base, .alive = fake_alive, .alive_context = fake};
    assert_int_equal(psw_core_create(&options, &driver.core, NULL), PSC_OK);
    psw_request_t *request;
    assert_int_equal(psw_core_hello(driver.core, &request, NULL), PSC_OK);
    assert_int_equal(psw_driver_wait(&driver, request, NULL), PSC_OK);
    psw_core_release(driver.core, request);
    return driver;
}

static void close_driver(fake_t *fake, psw_driver_t *driver)
{
    psp_buffer_put(fake->reply);
    psw_core_destroy(driver->core);
    psp_scratch_destroy(fake->scratch);
    assert_int_equal(psp_pool_bytes_out(fake->pool), 0);
    psp_pool_destroy(fake->pool);
}

static psw_request_t *ask(psw_driver_t *driver, fake_t *fake)
{
    psw_request_t *request;
    psw_part_t part;
    assert_int_equal(psw_core_request(driver->core, PSP_STATS, &request, NULL), PSC_OK);
    assert_int_equal(psw_core_part(driver->core, request, 0, &part, NULL), PSC_OK);
    psp_message_t m = {.kind = PSP_STATS, .request = part.header};
    psp_buffer_t *buffer = NULL;
    assert_int_equal(psp_message_pack(fake->pool, &m, &buffer, NULL), PSC_OK);
    psw_core_enqueue(driver->core, &part, buffer, 0, 0, 0);
    psw_core_seal(driver->core, request);
    return request;
}

static void a_request_is_sent_and_answered(void **state)
{
    (void)state;
    fake_t fake;
    psw_driver_t driver = open_driver(&fake);
    fake.mute_after = 100;
    psw_request_t *request = ask(&driver, &fake);
    assert_int_equal(psw_driver_wait_room(&driver, 0, 0, NULL), PSC_OK);
    assert_int_equal(psw_core_queued_bytes(driver.core, 0), 0);
    assert_int_equal(psw_driver_wait(&driver, request, NULL), PSC_OK);
    assert_int_equal(request->error.code, PSC_OK);
    assert_int_equal(psw_driver_wait_idle(&driver, NULL), PSC_OK);
    assert_int_equal(fake.waits, 0);
    close_driver(&fake, &driver);
}

static void a_transport_that_fails_ends_the_client(void **state)
{
    (void)state;
    for (int poll = 0; poll < 2; poll++) {
        fake_t fake;
        psw_driver_t driver = open_driver(&fake);
        psw_request_t *request = ask(&driver, &fake);
        fake.fail_send = poll == 0;
        fake.fail_poll = poll == 1;
        psc_error_t error = PSC_ERROR_INIT;
        const psc_status_t expected = poll == 0 ? PSC_PEER_GONE : PSC_PROTOCOL;
        assert_int_equal(psw_driver_wait(&driver, request, &error), expected);
        assert_true(psw_request_done(request));
        assert_int_equal(request->error.code, expected);
        assert_int_equal(psw_driver_wait_idle(&driver, &error), expected);
        assert_int_equal(psw_driver_wait_room(&driver, 0, 0, &error), expected);
        bool moved;
        assert_int_equal(psw_driver_step(&driver, &moved, &error), expected);
        psw_driver_leave(&driver, &error, 21, 0);
        assert_int_equal(fake.goodbyes, poll);
        close_driver(&fake, &driver);
    }
}

static void a_server_that_ends_lets_nobody_hang(void **state)
{
    (void)state;
    fake_t fake;
    psw_driver_t driver = open_driver(&fake);
    psw_request_t *request = ask(&driver, &fake);
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(psw_driver_wait(&driver, request, &error), PSC_DISK_FULL);
    assert_string_equal(request->error.message, "the disk is full");
    assert_int_equal(fake.waits, 3);
    close_driver(&fake, &driver);
}

static void the_last_replies_of_an_ended_server_count(void **state)
{
    (void)state;
    fake_t fake;
    psw_driver_t driver = open_driver(&fake);
    fake.mute_after = 100;
    fake.reply_while_asked = true;
    psw_request_t *request = ask(&driver, &fake);
    assert_int_equal(psw_driver_wait(&driver, request, NULL), PSC_OK);
    assert_int_equal(request->error.code, PSC_OK);
    assert_int_equal(psw_core_state(driver.core, NULL), PSC_OK);
    close_driver(&fake, &driver);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_is_sent_and_answered),
        cmocka_unit_test(a_transport_that_fails_ends_the_client),
        cmocka_unit_test(a_server_that_ends_lets_nobody_hang),
        cmocka_unit_test(the_last_replies_of_an_ended_server_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
