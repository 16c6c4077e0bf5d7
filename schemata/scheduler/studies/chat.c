// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// chat ROOMS USERS SECONDS: each user has a connection to a server over loopback TCP, and says as
// much as it can; the server passes what is said on to all users of the room. Two processes; two
// threads for each user and one for each connection.
#include "study.h"
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <sys/socket.h>

#define MESSAGE 100
#define MANY 4096

static int rooms, users, sockets[MANY];
static pthread_mutex_t room_locks[MANY] = { [0 ... MANY - 1] = PTHREAD_MUTEX_INITIALIZER };
static long long until;

// A whole message, or nothing at the end.
static int get(int from, char *message)
{
	for (int got = 0, n; got < MESSAGE; got += n)
		if ((n = read(from, message + got, MESSAGE - got)) <= 0)
			return 0;
	return 1;
}

static int put(int to, const char *message)
{
	for (int sent = 0, n; sent < MESSAGE; sent += n)
		if ((n = send(to, message + sent, MESSAGE - sent, MSG_NOSIGNAL)) <= 0)
			return 0;
	return 1;
}

static void *listen_to_user(void *of)
{
	int me = of - (void *)0, room = me / users;
	char message[MESSAGE];
	long long passed = 0;

	while (get(sockets[me], message)) {
		pthread_mutex_lock(&room_locks[room]);
		for (int i = room * users; i < (room + 1) * users; i++)
			passed += put(sockets[i], message);
		pthread_mutex_unlock(&room_locks[room]);
	}
	report("server", passed);
	return NULL;
}

static void *say_things(void *of)
{
	char message[MESSAGE] = "hello";
	long long said = 0;

	while (now() < until && put(sockets[of - (void *)0], message))
		said++;
	// Empty says that no more will come.
	memset(message, 0, sizeof(message));
	put(sockets[of - (void *)0], message);
	report("sender", said);
	return NULL;
}

// Until all users of the room, who are heard by all, have said their last.
static void *hear_things(void *of)
{
	char message[MESSAGE];
	long long heard = 0;

	for (int ended = 0; ended < users && get(sockets[of - (void *)0], message);) {
		ended += !message[0];
		heard += message[0] != 0;
	}
	report("receiver", heard);
	return NULL;
}

// Little room for what is under way: the chat lasts until all has been heard.
static void make_small(int socket)
{
	int size = 4096;

	setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
}

static void start(pthread_t *thread, void *(*body)(void *), long of)
{
	if ((errno = pthread_create(thread, NULL, body, (void *)of)))
		die("pthread_create");
}

static int serve(int listener)
{
	static pthread_t threads[MANY];

	for (int i = 0; i < rooms * users; i++)
		if ((sockets[i] = accept(listener, NULL, NULL)) < 0)
			die("accept");
	for (int i = 0; i < rooms * users; i++)
		start(&threads[i], listen_to_user, i);
	for (int i = 0; i < rooms * users; i++)
		pthread_join(threads[i], NULL);
	return 0;
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	static pthread_t senders[MANY], receivers[MANY];
	long long begin;
	char line[128];

	rooms = argc == 4 ? atoi(argv[1]) : 0;
	users = argc == 4 ? atoi(argv[2]) : 0;
	if (rooms < 1 || users < 1 || rooms * users > MANY)
		return fprintf(stderr, "chat: ROOMS USERS SECONDS\n"), 2;
	make_small(listener);
	if (listener < 0 || bind(listener, (void *)&address, length) || listen(listener, MANY) ||
	    getsockname(listener, (void *)&address, &length))
		die("socket");
	if (child("server") == 0)
		return serve(listener);
	for (int i = 0; i < rooms * users; i++) {
		sockets[i] = socket(AF_INET, SOCK_STREAM, 0);
		make_small(sockets[i]);
		// In turn, so that the server's numbers are ours.
		if (sockets[i] < 0 || connect(sockets[i], (void *)&address, length))
			die("connect");
	}
	begin = now();
	until = begin + (long long)(atof(argv[3]) * SECOND);
	for (int i = 0; i < rooms * users; i++) {
		start(&senders[i], say_things, i);
		start(&receivers[i], hear_things, i);
	}
	for (int i = 0; i < rooms * users; i++) {
		pthread_join(senders[i], NULL);
		pthread_join(receivers[i], NULL);
	}
	snprintf(line, sizeof(line), "{\"role\": \"chat\", \"begin_ns\": %lld, \"end_ns\": %lld}\n",
		 begin, now());
	say(line);
	for (int i = 0; i < rooms * users; i++)
		close(sockets[i]);
	return !wait_all();
}
