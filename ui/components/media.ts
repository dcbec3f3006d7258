import { useEffect, useState } from 'preact/hooks'

/** Whether a media query applies, such as `(max-width: 760px)`. */
export function useMedia(query: string): boolean {
  const [applies, setApplies] = useState(() => window.matchMedia(query).matches)
  useEffect(() => {
    const media = window.matchMedia(query)
    const update = () => setApplies(media.matches)
    update()
    media.addEventListener('change', update)
    return () => media.removeEventListener('change', update)
  }, [query])
  return applies
}

export const NARROW = '(max-width: 760px)'
