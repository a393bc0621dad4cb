"""Creates a pet and prints all pets, page by page, with the standard library of Python alone.

Run it with `PETSTORE_URL=… PETSTORE_API_KEY=psk_… python3 pets.py`. Python's integers are exact at any size.
"""

import http.client
import json
import os
import random
import re
import time
import uuid
from urllib.error import HTTPError
from urllib.parse import urljoin
from urllib.request import Request, urlopen

base_url = os.environ.get("PETSTORE_URL", "http://localhost:8080")
authorization = f"Bearer {os.environ['PETSTORE_API_KEY']}"


def send(path, pet=None, headers=None):
    """Sends a request, and retries it up to five times. A POST needs an Idempotency-Key, as below."""
    body = None if pet is None else json.dumps(pet).encode()
    request = Request(urljoin(base_url, path), body, {"Authorization": authorization, **(headers or {})})
    for attempt in range(6):
        seconds = 0
        try:
            with urlopen(request, timeout=30) as response:
                return json.load(response), response.headers
        except HTTPError as error:
            seconds = int(error.headers.get("Retry-After", 0))
            # The statuses that a retry can help. At the limit of the day, Retry-After can be 24 hours.
            if error.code not in (408, 429, 500, 502, 503, 504) or attempt == 5 or seconds > 300:
                raise SystemExit(f"{error.code} {error.read().decode()}, X-Request-Id: {error.headers['X-Request-Id']}")
        except (OSError, http.client.HTTPException):
            if attempt == 5:
                raise
        time.sleep(max(seconds, 0.2 * 2**attempt * random.uniform(1, 1.25)))


# With the same idempotency key, a second request creates no second pet.
headers = {"Content-Type": "application/json", "Idempotency-Key": str(uuid.uuid4())}
send("/v1/pets", {"name": "Kit", "categoryId": 9223372036854775807, "status": "sold"}, headers)

path = "/v1/pets?limit=100"
while path is not None:
    pets, headers = send(path)
    for pet in pets:
        print(pet["id"], pet["name"], pet["categoryId"])
    link = re.search(r'<([^>]+)>; rel="next"', headers.get("Link", ""))
    path = link and link[1]
