/** The sign of the console. */
export const Logo = () => (
  <svg class="logo" viewBox="0 0 16 16" width="20" height="20" aria-hidden="true">
    <rect width="16" height="16" rx="4" />
    <path d="M5 3.5h3.6a2.9 2.9 0 0 1 0 5.8H7v3.2H5zm2 1.8v2.2h1.4a1.1 1.1 0 0 0 0-2.2z" />
  </svg>
)
