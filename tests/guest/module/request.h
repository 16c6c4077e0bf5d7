/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef MY_REQUEST_H
#define MY_REQUEST_H

void my_request(unsigned int number);

#endif
