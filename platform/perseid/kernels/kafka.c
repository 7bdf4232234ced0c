/* Batches of librdkafka's messages to columns, and columns to batches. */
#include "kernels.h"

#include <stdlib.h>

/* rd_kafka_message_t of rdkafka.h, whose layout is part of librdkafka's binary interface. The
 * library that confluent-kafka brings has no header, so what is needed stands here. */
typedef struct {
    int32_t err;
    void *topic;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *private_;
} message;

typedef int64_t (*timestamp_of)(const message *, int32_t *type);
typedef void (*destroy_one)(message *);
typedef int (*produce_batch)(void *topic, int32_t partition, int flags, message *, int count);

enum { COPY = 2 }; /* RD_KAFKA_MSG_F_COPY */

/* How many of the messages are records, the others being events of the client; and their bytes. */
int64_t perseid_kafka_measure(message *const *messages, int64_t count, int64_t *value_bytes,
                              int64_t *key_bytes) {
    int64_t records = 0;
    *value_bytes = *key_bytes = 0;
    for (int64_t i = 0; i < count; i++) {
        if (messages[i]->err != 0) continue;
        records++;
        *value_bytes += (int64_t)messages[i]->len;
        *key_bytes += (int64_t)messages[i]->key_len;
    }
    return records;
}

/* The records, in their order, as columns; `valid` have a byte a record. */
void perseid_kafka_copy(message *const *messages, int64_t count, timestamp_of timestamp,
                        int32_t *value_offsets, uint8_t *values, uint8_t *value_valid,
                        int32_t *key_offsets, uint8_t *keys, uint8_t *key_valid, int64_t *offsets,
                        int64_t *timestamps) {
    int32_t value_end = 0, key_end = 0, type;
    int64_t row = 0;
    value_offsets[0] = key_offsets[0] = 0;
    for (int64_t i = 0; i < count; i++) {
        const message *found = messages[i];
        if (found->err != 0) continue;
        value_valid[row] = found->payload != NULL;
        if (found->payload != NULL && found->len) {
            memcpy(values + value_end, found->payload, found->len);
            value_end += (int32_t)found->len;
        }
        key_valid[row] = found->key != NULL;
        if (found->key != NULL && found->key_len) {
            memcpy(keys + key_end, found->key, found->key_len);
            key_end += (int32_t)found->key_len;
        }
        offsets[row] = found->offset;
        timestamps[row] = timestamp(found, &type);
        row++;
        value_offsets[row] = value_end;
        key_offsets[row] = key_end;
    }
}

void perseid_kafka_destroy(message **messages, int64_t count, destroy_one destroy) {
    for (int64_t i = 0; i < count; i++) destroy(messages[i]);
}

/* Queues records `first` up to `end` for one partition. Returns how many the client has taken; of
 * the first that it refused `*error` is the code. -1: no memory. */
int64_t perseid_kafka_produce(produce_batch produce, void *topic, int32_t partition,
                              const binary_column *keys, const binary_column *values, int64_t first,
                              int64_t end, int32_t *error) {
    static const uint8_t nothing[1]; /* an empty value is not a missing one */
    int64_t count = end - first;
    *error = 0;
    message *batch = calloc((size_t)count + 1, sizeof(message));
    if (batch == NULL) return -1;
    for (int64_t i = 0; i < count; i++) {
        int64_t row = first + i;
        if (is_valid(values, row)) {
            batch[i].len = (size_t)(values->offsets[row + 1] - values->offsets[row]);
            batch[i].payload = (void *)(batch[i].len ? values->data + values->offsets[row] : nothing);
        }
        if (is_valid(keys, row)) {
            batch[i].key_len = (size_t)(keys->offsets[row + 1] - keys->offsets[row]);
            batch[i].key = (void *)(batch[i].key_len ? keys->data + keys->offsets[row] : nothing);
        }
    }
    int64_t taken = produce(topic, partition, COPY, batch, (int)count);
    for (int64_t i = 0; i < count && *error == 0; i++) *error = batch[i].err;
    free(batch);
    return taken;
}

/* A plugin of librdkafka (its setting plugin.library.paths), to which it reports each client: the one
 * public way to the client in confluent-kafka's object. */
typedef int (*on_new)(void *client, const void *conf, void *opaque, char *error, size_t error_size);
typedef int (*add_on_new)(void *conf, const char *name, on_new, void *opaque);

static add_on_new add; /* rd_kafka_conf_interceptor_add_on_new */
static _Thread_local void *newest;

void perseid_kafka_watch(add_on_new function) { add = function; }

static int note(void *client, const void *conf, void *opaque, char *error, size_t error_size) {
    (void)conf, (void)opaque, (void)error, (void)error_size;
    newest = client;
    return 0;
}

/* librdkafka looks for a function of this name. */
int conf_init(void *conf, void **opaque, char *error, size_t error_size) {
    (void)opaque, (void)error, (void)error_size;
    return add == NULL ? -1 : add(conf, "perseid", note, NULL);
}

/* The client that this thread made since it last asked, or NULL. */
void *perseid_kafka_newest(void) {
    void *client = newest;
    newest = NULL;
    return client;
}
