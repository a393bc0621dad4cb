"""Creates a pet and prints all pets, page by page, with the standard library of Python alone.

Run it with `PETSTORE_URL=… PETSTORE_API_KEY=psk_… python3 pets.py`. Python's integers are exact at any size.
"""

import json
import os
import re
import time
import uuid
from urllib.error import HTTPError
from urllib.parse import urljoin
from urllib.request import Request, urlopen

base_url = os.environ.get("PETSTORE_URL", "http://localhost:8080")
authorization = f"Bearer {os.environ['PETSTORE_API_KEY']}"


def send(path, pet=None, headers=None):
    """Sends a request, and waits as a 429 demands. The service bans a client that does not wait."""
    body = None if pet is None else json.dumps(pet).encode()
    request = Request(urljoin(base_url, path), body, {"Authorization": authorization, **(headers or {})})
    for _ in range(5):
        try:
            with urlopen(request, timeout=30) as response:
                return json.load(response), response.headers
        except HTTPError as error:
            if error.code != 429:
                raise SystemExit(f"{error.code} {error.read().decode()}")
            time.sleep(int(error.headers["Retry-After"]))
    raise SystemExit("The limit is used up.")


# With the same key, a second request creates no second pet.
headers = {"Content-Type": "application/json", "Idempotency-Key": str(uuid.uuid4())}
send("/v1/pets", {"name": "Kit", "categoryId": 9223372036854775807, "status": "sold"}, headers)

path = "/v1/pets?limit=100"
while path is not None:
    pets, headers = send(path)
    for pet in pets:
        print(pet["id"], pet["name"], pet["categoryId"])
    link = re.search(r'<([^>]+)>; rel="next"', headers.get("Link", ""))
    path = link and link[1]
